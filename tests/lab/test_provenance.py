"""A digest changes with the code that a result depends on, and with nothing else."""

import ast
import functools
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import rankscope
from rankscope.catalogue import PAPERS
from rankscope.core import RankscopeError
from rankscope.lab import Scale
from rankscope.lab.closure import Sources
from rankscope.lab.provenance import PACKAGE, code_digest, device_name, peak_memory, roots_of, source_digest
from tests.lab.toy import toy

EXPERIMENTS = [one for scale in Scale for paper in PAPERS.values() for one in paper.experiments(scale)]
ROOTS = {one.name: roots_of(one) for one in EXPERIMENTS}
OWN = Sources(PACKAGE)

MEASURED_BY = {
    "amsel2024/(figure1|repeated.*|authors-recipe|last-layer)": "papers.amsel2024.measurement",
    "amsel2024/(memory|many-points|positions|tokens|dims)": "papers.amsel2024.measurement",
    "amsel2024/text": "studies.text.measurement",
    "amsel2024/text-projections": "studies.text.projections",
    "amsel2024/text-heads": "studies.text.heads",
    "garg2022/.*": "papers.garg2022.measurement",
    "amsel2024/two-points": "papers.amsel2024.two_points",
    "amsel2024/constructions": "papers.amsel2024.simulation",
    "amsel2024/computed-.*": "papers.amsel2024.computed.(quantities|simulations)",
    "li2024/(relevant|classes)": "studies.relevant.measurement",
    "li2024/depth.*": "studies.depth.measurement",
    "li2024/pruning.*": "studies.pruning.measurement",
    "li2024/(real|digits)": "studies.real.measurement",
    "li2024/.*": "papers.li2024.measurement",
}
"""The first pattern that an experiment's name matches says which module measures it."""


@pytest.fixture
def copy(tmp_path):
    """The package in another place, where a test may change it."""
    folder = tmp_path / "rankscope"
    shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def digests(folder):
    sources = Sources(folder)
    return {name: sources.digest(roots) for name, roots in ROOTS.items()}


def changed(folder, before=None):
    """The experiments whose digest is not that of the package, or not what it was."""
    before = before or {name: OWN.digest(roots) for name, roots in ROOTS.items()}
    return {name for name, now in digests(folder).items() if now != before[name]}


def users(*modules):
    return {name for name, roots in ROOTS.items() if OWN.closure(roots).keys() & set(modules)}


def edit(folder, module, old, new):
    path = folder / module
    text = path.read_text()
    assert old in text, module
    path.write_text(text.replace(old, new, 1))


def test_the_same_code_in_another_place_has_the_same_digests(copy):
    assert changed(copy) == set()


def test_a_threshold_of_a_measurement_changes_the_digests_of_those_that_use_it_and_no_other(copy):
    edit(copy, "papers/li2024/measurement.py", "LIKE_FULL = ", "LIKE_FULL = 2 * ")
    found = changed(copy)
    assert found == users("rankscope.papers.li2024.measurement")
    assert {"li2024/regime", "li2024/pruning"} <= found
    assert not found & {"amsel2024/figure1", "amsel2024/two-points", "li2024/digits", "li2024/real"}


@pytest.mark.parametrize(
    ("room", "some"),
    [
        ("training", {"amsel2024/figure1", "amsel2024/two-points", "li2024/regime", "li2024/digits"}),
        ("measure", {"li2024/regime", "li2024/relevant", "li2024/depth", "li2024/pruning", "li2024/digits"}),
        ("ensembles", {"amsel2024/figure1", "li2024/regime", "li2024/depth", "li2024/lora"}),
        ("tasks", {"amsel2024/figure1", "li2024/regime"}),
        ("theory", {"amsel2024/constructions", "amsel2024/computed-floors"}),
        ("kernels", {"amsel2024/figure1", "amsel2024/two-points"}),
    ],
)
def test_the_rooms_that_train_and_measure_count(copy, room, some):
    modules = [path for path in (copy / room).rglob("*.py") if path.name != "__init__.py"]
    for path in modules:
        path.write_text(path.read_text() + "\n_ANOTHER = 1\n")
    names = (path.relative_to(copy).with_suffix("").as_posix().replace("/", ".") for path in modules)
    assert some <= changed(copy) == users(*(f"rankscope.{name}" for name in names)) < set(ROOTS)


@pytest.mark.parametrize("module", ["scope/heads.py", "training/sgd.py", "papers/li2024/measurement.py"])
def test_docstrings_comments_and_layout_change_nothing(copy, module):
    path = copy / module
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree)
    tree.body[0].value.value = "Another docstring."
    path.write_text(
        f"# A comment.\n\n\n{ast.unparse(tree)}\n\n\n# Another one.\n"
    )  # and every line elsewhere
    assert changed(copy) == set()


@pytest.mark.parametrize(
    "pattern", ["*/claims.py", "*/figures.py", "report/*.py", "cli/*.py", "figures/*.py", "lab/[crsptvw]*.py"]
)
def test_what_judges_shows_or_runs_changes_nothing(copy, pattern):
    found = [path for path in copy.rglob("*.py") if path.match(pattern)]
    found = [path for path in found if path.name not in {"scale.py", "tidy.py", "trainer.py"}]
    assert found
    for path in found:
        path.write_text(path.read_text() + "\n_ANOTHER = 1\n")
    assert changed(copy) == set()


def test_a_module_that_is_imported_inside_a_function_counts(copy):
    late = "\n\ndef _late():\n    from rankscope.scope.rules import ranks_by\n"
    path = copy / "measure" / "attention_mass.py"
    path.write_text(path.read_text() + late)
    before = digests(copy)
    edit(copy, "scope/rules.py", "\n\n\n", "\n\n\n_ANOTHER = 1\n\n\n")
    assert changed(copy, before) >= users("rankscope.measure.attention_mass") >= {"li2024/regime"}


@pytest.mark.parametrize("experiment", EXPERIMENTS[:: len(Scale)], ids=lambda one: one.name)
def test_a_closure_leaves_out_no_module_that_one_of_its_modules_names(experiment):
    """A naive twin: every module of the package whose name stands in an import line."""
    closure = OWN.closure(roots_of(experiment))
    for name in (name for name in closure if OWN.path(name).name != "__init__.py"):
        source = re.sub(r"\nif TYPE_CHECKING:\n(    .*\n|\n)*", "\n", OWN.path(name).read_text())
        for line in re.findall(r"^ *(?:from|import) (rankscope[\w.]*)", source, re.MULTILINE):
            if OWN.path(line).name != "__init__.py":
                assert line in closure, f"{name} imports {line}"


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda one: one.name)
def test_a_closure_has_the_measurement_and_nothing_that_judges_shows_or_runs(experiment):
    closure = OWN.closure(roots_of(experiment))
    measured_by = next(m for pattern, m in MEASURED_BY.items() if re.fullmatch(pattern, experiment.name))
    assert any(re.fullmatch(f"rankscope.{measured_by}", name) for name in closure)
    words = {word for name in closure for word in name.split(".")}
    assert not words & {"claims", "figures", "report", "cli", "catalogue"}
    lab = {name for name in closure if name.startswith("rankscope.lab.")}
    assert "rankscope.lab.experiment" in lab
    assert lab <= {f"rankscope.lab.{name}" for name in ("experiment", "trainer", "scale", "tidy")}


def test_nothing_is_imported_or_read_in_a_way_that_a_closure_cannot_see():
    for name in {name for roots in ROOTS.values() for name in OWN.closure(roots)}:
        source = OWN.path(name).read_text()
        if (
            name == "rankscope.checkpoints.modules"
        ):  # imports transformers and peft so, never a module of ours
            source = source.replace("import_module(library)", "").replace("import import_module", "")
        if name == "rankscope":  # the front door imports a public name when it is first used from outside
            source = source.replace("import_module", "")
        lazily = re.findall(r"from rankscope import (.*)", source) + re.findall(r"rankscope\.(\w+)\(", source)
        used = {public for names in lazily for public in re.findall(r"\w+", names)}
        public = set() if name == "rankscope" else used & set(rankscope.__all__)
        assert not public, f"{name} takes {public} through the front door: no digest would notice a change"
        for hidden in ("import_module", "__import__", "importlib.resources", ".csv"):
            assert hidden not in source, f"{name} uses {hidden}: no digest would notice a change"


def test_another_torch_is_another_code_of_the_same_source():
    roots = ROOTS["li2024/regime"]
    assert source_digest(roots) == OWN.digest(roots)
    assert len({code_digest(roots), code_digest(roots, "1.0"), source_digest(roots)}) == 3
    assert code_digest(roots) == code_digest(roots, torch.__version__)


def test_roots_are_found_behind_partial_functions_enclosed_variables_and_fields():
    def enclosing(inner):
        return lambda: inner(3)

    class Holder:
        def __init__(self, inner):
            self.inner = inner

        def run(self, *args):
            return self.inner(*args)

    wanted = "tests.lab.toy"
    for trainer in (
        functools.partial(print, toy),
        functools.partial(print, there=[toy]),
        enclosing(toy),
        functools.lru_cache(toy),
        Holder({"any": toy}).run,
    ):
        other = replace(toy(3), trainer=trainer)
        for name in ("task", "model", "train"):
            object.__setattr__(other, name, None)
        assert wanted in roots_of(other)


def test_an_experiment_outside_the_package_counts_with_what_it_imports_of_it():
    closure = OWN.closure(roots_of(toy()))
    assert {"tests.lab.toy", "rankscope.lab.experiment", "rankscope.core.config"} <= set(closure)
    assert not {"torch", "random", "builtins"} & set(closure)


# A package of a few lines, for what the real one may have no example of.

SMALL = {
    "__init__.py": "from pkg.front import door\nFRONT = 1\n",
    "front.py": "door = 1\n",
    "trains.py": '"""Docstring."""\nfrom pkg.lab import Cell\nfrom .near import near\nfrom pkg import bare\n',
    "near.py": "near = 1\n",
    "bare.py": "bare = 1\n",
    "lab/__init__.py": "from pkg.lab.cells import Inner as Cell\nfrom pkg.lab.runs import run\nOWN = 1\n",
    "lab/cells.py": "import typing\nif typing.TYPE_CHECKING:\n    from pkg.lab.runs import run\nclass Inner: ...\n",
    "lab/runs.py": "run = 1\n",
    "acts.py": "act = 1\n",
}  # fmt: skip


@pytest.fixture
def small(tmp_path):
    """Its closure from `pkg.trains`, after some of its files were changed."""

    def closure(changes=None):
        for name, text in (SMALL | (changes or {})).items():
            path = tmp_path / "pkg" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return Sources(tmp_path / "pkg").closure(["pkg.trains"])

    return closure


def test_a_package_is_taken_by_name(small):
    def trains(line):
        return small({"trains.py": line}).keys()

    both = {"pkg.lab.runs", "pkg.lab.cells"}
    assert [*small()] == ["pkg", "pkg.bare", "pkg.lab", "pkg.lab.cells", "pkg.near", "pkg.trains"]
    assert trains("from pkg.lab import Cell, run\n") >= both
    for whole in (
        "from pkg.lab import OWN\n",
        "from pkg.lab import *\n",
        "import pkg.lab\n",
        "from pkg import lab\n",
    ):
        assert trains(whole) >= both, whole
    assert "pkg.front" in trains("from pkg import door\n")
    assert "pkg.front" not in trains("from pkg import bare\n")


def test_what_a_package_on_the_way_does_counts_and_what_it_names_does_not(small):
    before, init = small(), SMALL["lab/__init__.py"]
    assert small({"lab/__init__.py": init + "OTHER = 2\n\ndef f(): ...\n"}) == before
    for statement in ("act.flag = 1\n", "if act:\n    pass\n", "act()\n"):
        after = small({"lab/__init__.py": f"{init}from pkg.acts import act\n{statement}"})
        assert after["pkg.lab"] != before["pkg.lab"]
        assert "pkg.acts" in after, "and what it does that with"


def test_code_counts_and_docstrings_and_what_is_for_type_checkers_do_not(small):
    before = small()
    assert small({"near.py": '"""New."""\nnear  =  (1)  # why\n"""What it is."""\n'}) == before
    assert (
        small({"lab/cells.py": SMALL["lab/cells.py"].replace("from pkg.lab.runs import run", "import a")})
        == before
    )
    for other in (
        "near = 2\n",
        "near = 1.0\n",
        "near = True\n",
        "near = '1'\n",
        "near: int = 1\n",
        "far = 1\n",
    ):
        assert small({"near.py": other}) != before


def test_the_text_of_code_has_nothing_that_another_python_would_have_otherwise(small):
    """Newer ones give definitions empty lists of type parameters: what is empty, and where it stands, is not in the text."""
    text = small({"near.py": "def f(x):\n    return\n"})["pkg.near"]
    assert text == (
        "Module(body=[FunctionDef(name='f',args=arguments(args=[arg(arg='x')]),body=[Return()])])"
    )


def test_a_name_that_comes_from_nowhere_is_an_error_that_says_what_to_do(small):
    with pytest.raises(
        RankscopeError, match=r"pkg\.trains imports 'lazy' from pkg.* the module that defines it"
    ):
        small({"trains.py": "from pkg import lazy\n"})


def test_a_base_class_of_another_library_is_no_root_wherever_it_is_installed():
    assert not {name.partition(".")[0] for roots in ROOTS.values() for name in roots} - {
        "rankscope",
        "builtins",
    }
    assert {name.partition(".")[0] for name in roots_of(toy())} - {"builtins"} == {"rankscope", "tests"}


def test_a_gpu_is_called_by_its_name_and_its_memory_is_that_of_its_tensors(monkeypatch):
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: f"the GPU {device}")
    monkeypatch.setattr("torch.cuda.max_memory_allocated", lambda device: {"cuda:1": 7}[device])
    assert (device_name("cuda:1"), peak_memory("cuda:1")) == ("the GPU cuda:1", 7)
    monkeypatch.setattr("torch.get_num_threads", lambda: 3)
    assert device_name("cpu") == "CPU, 3 threads"
    monkeypatch.setattr("resource.getrusage", lambda who: SimpleNamespace(ru_maxrss=5))
    for system, bytes_held in (("linux", 5 * 1024), ("darwin", 5)):
        monkeypatch.setattr("sys.platform", system)
        assert peak_memory("cpu") == bytes_held


@pytest.mark.parametrize("test", ["TYPE_CHECKING", "typing.TYPE_CHECKING"])
def test_what_is_there_for_type_checkers_alone_is_no_code_and_what_is_there_otherwise_is(tmp_path, test):
    folder = tmp_path / "of"
    folder.mkdir()
    (folder / "__init__.py").touch()
    for name in ("early", "checked", "imported"):
        (folder / f"{name}.py").write_text(f"{name} = 1\n")
    imports = [f"from of.{name} import {name}\n" for name in ("early", "checked", "imported")]
    text = f"import typing\n{imports[0]}if {test}:\n    {imports[1]}else:\n    {imports[2]}"
    module = folder / "module.py"

    def closure():
        return Sources(folder).closure(["of.module"])

    module.write_text(text)
    before = closure()
    assert before.keys() == {"of", "of.early", "of.module", "of.imported"}
    module.write_text(text.replace("from of.checked import checked", "seen = 2"))
    assert closure() == before
    module.write_text(text.replace("import imported", "import imported as other"))
    assert closure()["of.module"] != before["of.module"]


def test_dots_count_from_the_package_of_the_one_that_imports(tmp_path):
    deep = tmp_path / "of" / "some" / "deep"
    deep.mkdir(parents=True)
    for place in (deep, deep.parent, deep.parent.parent):
        (place / "__init__.py").touch()
        (place / "beside.py").touch()
    (deep / "module.py").write_text("from .beside import a\nfrom ..beside import b\nfrom ... import beside\n")
    found = Sources(tmp_path / "of").closure(["of.some.deep.module"])
    packages = {"of", "of.some", "of.some.deep"}
    assert found.keys() == {*packages, *(f"{name}.beside" for name in packages), "of.some.deep.module"}
