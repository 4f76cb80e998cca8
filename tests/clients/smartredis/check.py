"""SmartRedis, over TCP and a Unix socket: tensors, datasets, lists of datasets, models and scripts, and its administration."""

import os

import numpy
from smartredis import Client, ConfigOptions, Dataset
from smartredis.error import RedisReplyError

PORT = os.environ["SERVER_PORT"]
TYPES = ["float64", "float32", "int64", "int32", "int16", "int8", "uint16", "uint8"]


def same(got, want):
    if isinstance(want, numpy.ndarray):
        assert got.dtype == want.dtype, (got.dtype, want.dtype)
        numpy.testing.assert_array_equal(got, want)
    elif got != want:
        raise AssertionError(f"expected {want!r:.200}, got {got!r:.200}")


def fails(call, *args):
    try:
        call(*args)
    except RedisReplyError:
        return
    raise AssertionError(f"no error from {call.__name__} of {args}")


def tensors(client):
    for dtype in TYPES:
        for shape in [(1,), (7,), (2, 3), (4, 3, 2, 1)]:
            array = (numpy.random.random(shape) * 100).astype(dtype)
            client.put_tensor("tensor", array)
            same(client.get_tensor("tensor"), array)
    large = numpy.random.random((1024, 1024))
    client.put_tensor("large", large)
    same(client.get_tensor("large"), large)
    assert client.tensor_exists("large") and client.key_exists("large")
    client.rename_tensor("large", "renamed")
    assert not client.tensor_exists("large")
    client.copy_tensor("renamed", "copied")
    client.delete_tensor("renamed")
    same(client.get_tensor("copied"), large)
    assert client.poll_tensor("copied", 1, 5) and not client.poll_key("renamed", 1, 2)
    fails(client.get_tensor, "renamed")


def datasets(client):
    array = numpy.arange(12, dtype="int32").reshape(3, 4)
    for number in range(5):
        dataset = Dataset(f"step {number}")
        dataset.add_tensor("field", array * number)
        dataset.add_tensor("mask", numpy.array([0, 1, 255], dtype="uint8"))
        dataset.add_meta_scalar("time", numpy.float64(number / 10))
        dataset.add_meta_scalar("time", numpy.float64(1))
        dataset.add_meta_string("unit", "m/s")
        client.put_dataset(dataset)
        client.append_to_list("steps", dataset)
    got = client.get_dataset("step 3")
    same(got.get_tensor("field"), array * 3)
    same(sorted(got.get_tensor_names()), ["field", "mask"])
    same(list(got.get_meta_scalars("time")), [0.3, 1.0])
    same(got.get_meta_strings("unit"), ["m/s"])
    client.rename_dataset("step 3", "third")
    client.copy_dataset("third", "copy")
    client.delete_dataset("third")
    assert client.dataset_exists("copy") and not client.dataset_exists("third")
    same(client.get_dataset("copy").get_tensor("field"), array * 3)
    assert client.poll_dataset("copy", 1, 5) and not client.poll_dataset("third", 1, 2)
    same(client.get_list_length("steps"), 5)
    assert client.poll_list_length("steps", 5, 1, 5) and client.poll_list_length_gte("steps", 3, 1, 5)
    assert client.poll_list_length_lte("steps", 6, 1, 5) and not client.poll_list_length("steps", 9, 1, 2)
    for number, dataset in enumerate(client.get_dataset_list_range("steps", 0, 2)):
        same(dataset.get_tensor("field"), array * number)
    client.copy_list("steps", "other")
    client.rename_list("other", "renamed steps")
    same(client.get_list_length("renamed steps"), 5)
    client.delete_list("renamed steps")
    same(client.get_list_length("renamed steps"), 0)


def models(client):
    model = os.urandom(3 << 20)
    client.set_model("model", model, "ONNX", "CPU", tag="v1")
    same(client.get_model("model"), model)
    client.set_model_chunk_size(1 << 20)
    client.set_model("model", model, "TORCH", "CPU", batch_size=4, min_batch_size=2, min_batch_timeout=10)
    # SmartRedis lays parts that it gets over each other.
    same(len(client.get_model("model")), len(model))
    client.set_model_chunk_size(1 << 22)
    same(client.get_model("model"), model)
    client.set_model("graph", model, "TF", "GPU", inputs=["x", "y"], outputs=["z"])
    same(client.get_model("graph"), model)
    assert client.model_exists("model")
    info = client.get_ai_info([f"127.0.0.1:{PORT}"], "model")[0]
    same((info["type"], info["backend"], info["device"], info["calls"]), ("MODEL", "TORCH", "CPU", "0"))
    client.put_tensor("input", numpy.zeros(3))
    fails(client.run_model, "model", ["input"], ["output"])
    client.delete_model("model")
    assert not client.model_exists("model")
    fails(client.get_model, "model")
    client.set_script("script", "def f(x):\n    return x\n", "CPU")
    same(client.get_script("script"), "def f(x):\n    return x\n")
    fails(client.run_script, "script", "f", ["input"], ["output"])
    client.delete_script("script")
    fails(client.get_script, "script")


def administration(client):
    address = f"127.0.0.1:{PORT}"
    same(client.get_db_node_info([address])[0]["Server"]["tcp_port"], PORT)
    client.config_set("lua-time-limit", "4000", address)
    same(client.config_get("lua-time-limit", address), {"lua-time-limit": "4000"})
    client.save([address])
    client.flush_db([address])
    assert not client.key_exists("copied")


os.environ["SR_DB_TYPE"] = "Standalone"
# A busy machine may take longer than 100 ms, after which the client sends again what may have been executed.
os.environ["SR_SOCKET_TIMEOUT"] = "20000"
os.environ["SSDB"] = f"127.0.0.1:{PORT}"
for check in (tensors, datasets, models, administration):
    check(Client(None, logger_name="check"))
os.environ["SSDB"] = f"unix://{os.environ['SERVER_SOCKET']}"
tensors(Client(ConfigOptions.create_from_environment(""), logger_name="check"))
