"""A Celery application whose job notes outside the store that it ran."""

import os

from celery import Celery

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
