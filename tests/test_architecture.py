"""The rooms of the house: who may import whom, and what an import costs."""

import ast
import graphlib
import pathlib
import subprocess
import sys

import pytest

import keras_gsp

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "keras_gsp"
# A room imports from itself, the rooms named here, and the private modules
# beside the rooms.
ALLOWED = {
    room: set(others.split())
    for room, others in {
        "ops": "",
        "storage": "",
        "layers": "ops",
        "metrics": "ops",
        "data": "ops storage",
        "losses": "ops layers",
        "models": "ops layers losses metrics",
        "retrieval": "ops storage layers metrics data models",
        "callbacks": "ops storage layers losses metrics data models retrieval",
    }.items()
}
MODULES = sorted(PACKAGE.rglob("*.py"))
TRAINING = sorted((ROOT / "training").rglob("*.py"))


def imported_names(path):
    """Yields what a file imports, anywhere in it, longest name first."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                yield f"{node.module}.{name.name}", node.module
        elif isinstance(node, ast.Import):
            for name in node.names:
                yield (name.name,)


def imported_rooms(path):
    """Rooms of the package, and "training", that a file imports anywhere."""
    names = {name for names in imported_names(path) for name in names}
    parts = [name.split(".") for name in names]
    rooms = {part[1] for part in parts if part[0] == "keras_gsp" and part[1:]}
    rooms = {room for room in rooms if room[0] != "_"}
    return rooms | {"training" for part in parts if part[0] == "training"}


@pytest.mark.parametrize("room", ALLOWED)
def test_imports_point_one_way(room):
    for path in (PACKAGE / room).rglob("*.py"):
        upwards = imported_rooms(path) - ALLOWED[room] - {room}
        assert not upwards, f"{path} imports {upwards}"


def test_private_modules_import_no_room():
    for path in PACKAGE.glob("_[!_]*.py"):
        assert not imported_rooms(path), path


def test_the_package_has_no_names_but_its_rooms():
    names = {name for name in vars(keras_gsp) if not name.startswith("_")}
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert names == rooms == set(ALLOWED)


def module_graph():
    """What each module imports, by dotted names."""
    paths = {}
    for path in [*MODULES, *TRAINING]:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        paths[name.removesuffix(".__init__")] = path
    return {
        # Of `from room import module` the module counts, not the room.
        module: {
            next((name for name in names if name in paths), None)
            for names in imported_names(path)
        }
        - {None}
        for module, path in paths.items()
    }


def test_no_two_modules_import_each_other():
    graph = module_graph()
    order = list(graphlib.TopologicalSorter(graph).static_order())
    assert len(order) == len(graph)  # a circle raises and names itself
    assert "training.recipes.recipe" in graph["training.runs.train_run"]


def test_no_folder_and_its_neighbors_import_each_other():
    graph = module_graph()
    folders = {name.rpartition(".")[0] for name in graph} - {""}
    assert "keras_gsp.retrieval.index" in folders
    for folder in folders:
        inside = f"{folder}."
        # Each folder or module inside counts as one; `folder` itself does not.
        children: dict[str, set[str]] = {}
        for module, imported in graph.items():
            if module.startswith(inside):
                child = module.removeprefix(inside).split(".")[0]
                children.setdefault(child, set()).update(
                    name.removeprefix(inside).split(".")[0]
                    for name in imported
                    if name.startswith(inside)
                )
        graph_of_children = {k: v - {k} for k, v in children.items()}
        list(graphlib.TopologicalSorter(graph_of_children).static_order())


# Rooms of `training`, lowest floor first; a room imports from its own floor and
# from those below. Commands are the files in `training` itself.
FLOORS = (
    {"datasets", "pictures"},
    {"recipes"},
    {"runs", "embedding"},
    {"reports"},
    {"commands"},
)


def test_training_has_five_floors_and_no_import_points_upwards():
    floor = {room: i for i, rooms in enumerate(FLOORS) for room in rooms}
    found = set()

    def room_of(word):
        return word if (ROOT / "training" / word).is_dir() else "commands"

    for path in TRAINING:
        _, word, *_ = path.relative_to(ROOT).with_suffix("").parts
        if word in ("research", "__init__"):
            continue
        own = room_of(word)
        found.add(own)
        for names in imported_names(path):
            root, _, inner = names[-1].partition(".")
            if root == "training" and inner:
                other = room_of(inner.split(".")[0])
                assert other != "research", f"{path} imports {inner}"
                assert floor[other] <= floor[own], f"{path}: {inner}"
    assert found == {*floor}


def public_functions(tree):
    """Yields (class or None, function) of all that a user may call."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name[0] != "_":
            yield None, node
        if isinstance(node, ast.ClassDef) and node.name[0] != "_":
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    if member.name[0] != "_" or member.name.endswith("__"):
                        yield node, member


def test_every_public_parameter_and_result_has_a_type():
    for path in (*MODULES, *TRAINING):
        for owner, function in public_functions(ast.parse(path.read_text())):
            given = function.args
            arguments = [
                *given.posonlyargs,
                *given.args,
                *given.kwonlyargs,
                *filter(None, (given.vararg, given.kwarg)),
            ]
            decorators = {getattr(d, "id", "") for d in function.decorator_list}
            if owner is not None and "staticmethod" not in decorators:
                arguments = arguments[1:]
            untyped = [a.arg for a in arguments if a.annotation is None]
            assert not untyped, f"{path}: {function.name}: {untyped}"
            assert function.returns is not None, f"{path}: {function.name}"


def loaded_modules(backend, code):
    """Runs code in a fresh interpreter and returns what it imported."""
    found = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={"KERAS_BACKEND": backend, "PATH": "", "HOME": "/nowhere"},
    )
    return set(found.stdout.split())


@pytest.mark.slow
def test_import_leaves_optional_packages_alone():
    # Keras itself imports matplotlib and Pillow where they are installed.
    before = loaded_modules("tensorflow", "import keras")
    added = loaded_modules("tensorflow", "import keras_gsp") - before
    roots = {name.split(".")[0] for name in added}
    optional = {"tensorflow_datasets", "scann", "matplotlib", "PIL", "tyro"}
    assert not roots & optional
    on_jax = loaded_modules("jax", "import keras_gsp")
    assert "jax" in on_jax and "tensorflow" not in on_jax


COMMANDS = sorted(
    path.stem
    for path in (ROOT / "training").glob("*.py")
    if path.stem != "__init__"
)


def test_help_of_a_command_waits_for_no_framework():
    code = """
import runpy, sys
for command in sys.argv.pop().split(","):
    sys.argv = [command, "--help"]
    try:
        runpy.run_module(f"training.{command}", run_name="__main__")
    except SystemExit as end:
        assert not end.code, (command, end.code)
    slow = {"keras", "tensorflow", "jax"} & sys.modules.keys()
    assert not slow, (command, slow)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code, ",".join(COMMANDS)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert ended.returncode == 0, ended.stderr
    assert all(f"training.{name}" in ended.stdout for name in COMMANDS)
