"""A Celery application whose job notes outside the store that it ran."""

import os

from celery import Celery
from kombu.transport import redis


class QoS(redis.QoS):
    """As it is, but for its word about a message that it has taken and cannot note as taken."""

    def append(self, message, delivery_tag):
        try:
            super().append(message, delivery_tag)
        except self.channel.connection_errors:
            with open(os.environ["DROPPED"], "a") as dropped:
                dropped.write(f"{message.headers['id'].removeprefix('job-')}\n")
            raise


redis.Channel.QoS = QoS
app = Celery("jobs", broker=f"redis://localhost:{os.environ['SERVER_PORT']}/0",
             backend=f"redis://localhost:{os.environ['SERVER_PORT']}/1")
app.conf.task_acks_late = True
app.conf.worker_hijack_root_logger = False
app.conf.worker_prefetch_multiplier = 10
app.conf.broker_connection_retry_on_startup = True
app.conf.broker_connection_max_retries = None
app.conf.broker_transport_options = {"visibility_timeout": 20}
app.conf.result_backend_always_retry = True


@app.task
def job(number):
    with open(os.environ["DONE"], "a") as done:
        done.write(f"{number}\n")
    return number * 2
