// A BullMQ queue: `jobs.js add N` adds N jobs, less those that an earlier run has noted as added; `jobs.js work` runs
// them, each noting outside the store that it ran; `jobs.js results N` checks that all have completed.

import { appendFileSync, readFileSync } from 'node:fs'
import { Queue, Worker } from 'bullmq'

const { SERVER_PORT, ADDED, DONE } = process.env
const connection = { host: 'localhost', port: Number(SERVER_PORT), maxRetriesPerRequest: null }
const [action, count] = process.argv.slice(2)

if (action === 'work') {
  const run = async job => {
    appendFileSync(DONE, `${job.data.number}\n`)
    return job.data.number * 2
  }
  const worker = new Worker('jobs', run, {
    connection, concurrency: 10, lockDuration: 5000, stalledInterval: 2000, maxStalledCount: 10
  })
  worker.on('error', error => console.error(error.message))
} else {
  const queue = new Queue('jobs', { connection })
  queue.on('error', error => console.error(error.message))
  if (action === 'add') {
    appendFileSync(ADDED, '')
    const known = new Set(readFileSync(ADDED, 'utf8').split('\n').filter(Boolean).map(Number))
    const left = Array.from({ length: count }, (_, number) => number).filter(number => !known.has(number))
    while (left.length) {
      const some = left.splice(0, 50)
      await queue.addBulk(some.map(number => ({ name: 'job', data: { number }, opts: { jobId: `job-${number}` } })))
      appendFileSync(ADDED, some.map(number => `${number}\n`).join(''))
    }
  } else {
    for (let number = 0; number < count; number++) {
      const job = await queue.getJob(`job-${number}`)
      if (job?.returnvalue !== number * 2) throw new Error(`job ${number} has the result ${job?.returnvalue}`)
    }
  }
  await queue.close()
}
