"""What is installed: the first program, the types, the documentation."""

import ast
import inspect
import os
import subprocess
import sys

import holdfast
import pytest
from conftest import PATIENCE, ROOT
from holdfast import _native

PACKAGE = os.path.dirname(holdfast.__file__)


def test_the_first_program_runs(server):
    program = os.path.join(ROOT, "clients", "python", "examples", "first.py")
    ran = subprocess.run([sys.executable, program, server.path("socket")], capture_output=True, text=True,
                         timeout=PATIENCE)
    assert (ran.stdout, ran.stderr) == ("1048576 bytes, sum 8589869056, last 131071\n", "")
    ran = subprocess.run([sys.executable, program, "nothing"], capture_output=True, text=True, timeout=PATIENCE)
    assert ran.returncode == 1 and "an address is HOST:PORT" in ran.stderr


def test_the_program_of_the_readme_runs(address):
    with open(os.path.join(ROOT, "clients", "python", "README.md")) as readme:
        lines = [line[4:] for line in readme.read().split("first program:")[1].splitlines() if line[:4] in ("    ", "")]
    program = "\n".join(lines).split("\n* ")[0].replace("127.0.0.1:6379", address)
    subprocess.run([sys.executable, "-c", program + "\nassert total == grid.sum() > 0"], check=True, timeout=PATIENCE)


def parameters(function):
    """The names of a function's parameters in the stubs, with a star before those of its kinds, and which have a default."""
    args = function.args
    positional = args.posonlyargs + args.args
    optional = len(positional) - len(args.defaults)
    found = [(arg.arg, at >= optional) for at, arg in enumerate(positional)]
    found += [(f"*{args.vararg.arg}", False)] if args.vararg else []
    return found + [(f"={arg.arg}", default is not None) for arg, default in zip(args.kwonlyargs, args.kw_defaults)]


def signature(function):
    """The same of a function that is there."""
    prefix = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.KEYWORD_ONLY: "="}
    return [(prefix.get(one.kind, "") + one.name, one.default is not inspect.Parameter.empty)
            for one in inspect.signature(function).parameters.values()]


def members(module, skip=()):
    """The functions and properties of a module or class."""
    return {name for name, value in vars(module).items()
            if not isinstance(value, type(ast)) and (not name.startswith("_") or name in skip)}


def test_the_stubs_say_what_is_there():
    with open(os.path.join(PACKAGE, "_native.pyi")) as file:
        tree = ast.parse(file.read())
    assert os.path.exists(os.path.join(PACKAGE, "py.typed"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert members(_native) == set(classes) | set(functions)
    for name, stub in functions.items():
        assert parameters(stub) == signature(getattr(_native, name)), name
    special = {"__enter__", "__exit__", "__await__"}
    for name, stub in classes.items():
        kind = getattr(_native, name)
        stubs = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef)}
        assert members(kind, special) == set(stubs) - {"__new__"}, name
        if "__new__" in stubs:
            assert parameters(stubs["__new__"])[1:] == signature(kind), name
        for method, node in stubs.items():
            is_property = bool(node.decorator_list)
            assert is_property == inspect.isgetsetdescriptor(getattr(kind, method)), method
            if not is_property and not method.startswith("__"):
                assert parameters(node) == signature(getattr(kind, method)), method


@pytest.mark.parametrize("module", [holdfast, _native.Client, _native.Request])
def test_all_that_is_public_is_documented(module):
    names = holdfast.__all__ if module is holdfast else [name for name in vars(module) if not name.startswith("_")]
    for name in names:
        assert getattr(module, name).__doc__, name
    assert module.__doc__
