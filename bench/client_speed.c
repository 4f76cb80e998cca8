/* Small requests in batches, by the library or by hiredis: client_speed holdfast|hiredis SOCKET set|get BATCH REQUESTS BYTES.
   Prints seconds, and the processor's seconds that the client took. bench/client_speed.py compiles and runs it. */

#include <hiredis/hiredis.h>
#include <holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { BATCH_MAX = 1024, KEYS = 10000, BYTES_MAX = 1 << 20, KEY_BYTES = 16 };

static char keys[KEYS][KEY_BYTES + 1];
static char value[BYTES_MAX];
static int batch, sets;
static size_t bytes;
static hf_client client;
static redisContext *context;

static void need(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "not so: %s\n", what);
        exit(1);
    }
}

static const char *key_of(long number)
{
    return keys[number % KEYS];
}

static void holdfast_batch(long number)
{
    static hf_request requests[BATCH_MAX];
    hf_reply reply;
    for (int i = 0; i < batch; i++) {
        const char *key = key_of(number + i);
        need((sets ? hf_bset(client, key, KEY_BYTES, value, bytes, &requests[i])
                   : hf_bget(client, key, KEY_BYTES, &requests[i])) == HF_OK, "taken in");
    }
    need(hf_wait_all(client, requests, batch, -1) == HF_OK, "done");
    for (int i = 0; i < batch; i++) {
        need(hf_result(client, requests[i], &reply) == HF_OK, "a reply");
        need(sets ? reply.type == HF_STATUS : reply.type == HF_STRING && reply.len == bytes, "the reply");
    }
    hf_release_all(client, requests, batch);
}

static void hiredis_batch(long number)
{
    redisReply *reply;
    for (int i = 0; i < batch; i++) {
        const char *argv[] = { sets ? "SET" : "GET", key_of(number + i), value };
        size_t lens[] = { 3, KEY_BYTES, bytes };
        redisAppendCommandArgv(context, sets ? 3 : 2, argv, lens);
    }
    for (int i = 0; i < batch; i++) {
        need(redisGetReply(context, (void **)&reply) == REDIS_OK, "a reply");
        need(sets ? reply->type == REDIS_REPLY_STATUS : reply->type == REDIS_REPLY_STRING && (size_t)reply->len == bytes,
             "the reply");
        freeReplyObject(reply);
    }
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static double processor(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

int main(int argc, char **argv)
{
    hf_options options = { .size = sizeof options };
    char error[200];
    long requests;
    double seconds, used;
    int measured_sets;
    void (*run)(long);

    need(argc == 7, "six arguments");
    run = strcmp(argv[1], "hiredis") == 0 ? hiredis_batch : holdfast_batch;
    measured_sets = strcmp(argv[3], "set") == 0;
    batch = atoi(argv[4]);
    requests = atol(argv[5]);
    bytes = (size_t)atol(argv[6]);
    need(batch >= 1 && batch <= BATCH_MAX && bytes <= BYTES_MAX, "a batch of 1 to 1024, values of a mebibyte at most");
    memset(value, 'x', sizeof value);
    for (int i = 0; i < KEYS; i++)
        snprintf(keys[i], sizeof keys[i], "key:%012d", i);
    if (run == hiredis_batch) {
        context = redisConnectUnix(argv[2]);
        need(context && !context->err, "hiredis has a connection");
    } else {
        options.servers = argv[2];
        need(hf_open(&options, &client, error, sizeof error) == HF_OK, error);
    }

    sets = 1;
    for (long at = 0; at < KEYS; at += batch)
        run(at);
    sets = measured_sets;
    seconds = now();
    used = processor();
    for (long at = 0; at < requests; at += batch)
        run(at);
    printf("%.6f %.6f\n", now() - seconds, processor() - used);
    return 0;
}
