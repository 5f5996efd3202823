"""What a workflow reaches, found from syntax: every import that Python could follow, and nothing is executed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.errors import InvalidValue, NoSource
from perdure.version.scan import scan
from tests.version.projects import FATAL, FLOW, OWN, identity, reached, shop, source, survey, write

TYPING = "from typing import TYPE_CHECKING\n"
LOAD = "from importlib import import_module\n"

IMPORTS = {
    "plain": "import shop.late",
    "with another name": "import shop.late as l",
    "from": "from shop.late import x",
    "a submodule": "from shop import late",
    "relative": "from . import late",
    "relative, from": "from .late import x",
    "in a function": "def f():\n    from shop import late",
    "in a method of a class in a branch": "if 1:\n  class C:\n    def m(self):\n      import shop.late",
    "after failing": "try:\n    import fast\nexcept ImportError:\n    from . import late",
    "in the other branch of type checking": TYPING + "if TYPE_CHECKING:\n    x = 1\nelse:\n    from . import late",
    "unless type checking": "import typing\nif not typing.TYPE_CHECKING:\n    from . import late",
    "literal import_module": "import importlib\nimportlib.import_module('shop.late')",
    "literal import_module, by another name": "from importlib import import_module as load\nload('shop.late')",
    "literal import_module, relative": "from importlib import import_module\nimport_module('.late', __package__)",
    "literal import_module, relative to a name": LOAD + "import_module('.late', package='shop')",
    "literal __import__": "__import__('shop.late')",
    "__import__ with a list": "__import__('shop', fromlist=['late'])",
    "__import__, relative": "__import__('late', globals(), locals(), [], 1)",
    "named in a text": "HANDLER = 'shop.late'",
    "named in a text, with an attribute": "HANDLER = 'shop.late:Handler'",
    "named in a text, with a class": "LOGGING = {'class': 'shop.late.Handler'}",
    "a name to resolve": "import pkgutil\npkgutil.resolve_name('shop.late:x')",
    "run as a module": "import runpy\nrunpy.run_module('shop.late')",
}


@pytest.mark.parametrize("line", IMPORTS.values(), ids=IMPORTS)
def test_an_import_is_followed(tmp_path: Path, line: str) -> None:
    assert reached(tmp_path, shop(f"{line}\n", late=FATAL, other=FATAL)) == OWN | {"shop/late.py"}


NOT_IMPORTS = {
    "only for type checking": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import late",
    "only for type checking, qualified": "import typing as t\nif t.TYPE_CHECKING:\n    import shop.late",
    "in a comment": "# import shop.late",
    "in a sentence": "'see shop.late for more'",
    "another package's module of that name": "import late.shop",
    "out of the tree": "from ... import late",
    "a function of that name": "def import_module(name): ...\nimport_module('x')",
}


@pytest.mark.parametrize("line", NOT_IMPORTS.values(), ids=NOT_IMPORTS)
def test_what_is_no_import_is_not_followed(tmp_path: Path, line: str) -> None:
    assert reached(tmp_path, shop(f"{line}\n", late=FATAL)) == OWN


def test_imports_are_followed_through_modules_and_circles(tmp_path: Path) -> None:
    files = shop(
        "from . import a\n", a="from . import b\n", b="from shop import c\n", c="from . import a, flow\n", d=""
    )
    assert reached(tmp_path, files) == OWN | {"shop/a.py", "shop/b.py", "shop/c.py"}


def test_parent_packages_count(tmp_path: Path) -> None:
    files = shop("import shop.a.b.c\n") | {
        f"shop/{path}.py": "" for path in ("a/__init__", "a/b/__init__", "a/b/c", "a/d")
    }
    assert reached(tmp_path, files) == OWN | {"shop/a/__init__.py", "shop/a/b/__init__.py", "shop/a/b/c.py"}


def test_relative_imports_of_a_package_are_its_own(tmp_path: Path) -> None:
    files = shop("from shop import a\n", a__of____init__="from . import x\nfrom .. import y\n", a__of__x="", y="", x="")
    assert reached(tmp_path, files) == OWN | {"shop/a/__init__.py", "shop/a/x.py", "shop/y.py"}


def test_a_star_takes_the_submodules_that_are_exported(tmp_path: Path) -> None:
    parts = shop("from shop.a import *\n", a__of____init__="__all__ = ['x']\n", a__of__x="", a__of__y="")
    assert reached(tmp_path, parts) == OWN | {"shop/a/__init__.py", "shop/a/x.py"}


def test_a_star_with_computed_exports_takes_all_submodules(tmp_path: Path) -> None:
    init = "__all__ = [name for name in NAMES]\n"
    parts = shop("from shop.a import *\n", a__of____init__=init, a__of__x="", a__of__y="")
    assert reached(tmp_path, parts) == OWN | {"shop/a/__init__.py", "shop/a/x.py", "shop/a/y.py"}


def test_a_namespace_package_needs_no_init(tmp_path: Path) -> None:
    files = {"space/flow.py": "from space.inner import a\n" + FLOW, "space/inner/a.py": "", "space/inner/b.py": ""}
    parts = identity(write(tmp_path, files), "space.flow:order").parts
    assert set(parts) == {"space/flow.py", "space/inner/a.py"}


def test_a_namespace_over_several_folders_is_one(tmp_path: Path) -> None:
    write(tmp_path / "one", {"space/flow.py": "from space import a, b\n" + FLOW, "space/a.py": "A = 1\n"})
    write(tmp_path / "two", {"space/a.py": "A = 2\n", "space/b.py": ""})
    declared = source(tmp_path / "one", "space.flow:order")
    (found,) = survey(tmp_path / "one", declared, also=(tmp_path / "two",)).definitions
    assert found.parts["space/a.py"] == scan(b"A = 1\n").canonical
    assert set(found.parts) == {"space/flow.py", "space/a.py", "space/b.py"}


def test_other_top_level_code_of_the_project_is_first_party(tmp_path: Path) -> None:
    files = shop("import tools\nfrom lib import x\nimport json, os.path\n") | {
        "tools.py": "", "lib/__init__.py": "", "lib/x.py": "", "lib/y.py": "", "beside.py": "",
    }  # fmt: skip
    assert reached(tmp_path, files) == OWN | {"tools.py", "lib/__init__.py", "lib/x.py"}


def test_installed_code_is_not_first_party(tmp_path: Path) -> None:
    write(tmp_path, {"site-packages/vendor/__init__.py": FATAL})
    write(tmp_path, shop("import vendor.deep\n"))
    found = survey(tmp_path, also=(tmp_path / "site-packages",))
    assert set(found.definitions[0].parts) == OWN
    assert found.release.roots == ("shop",)


def test_a_workflow_that_is_itself_installed_is_first_party(tmp_path: Path) -> None:
    place = tmp_path / "site-packages"
    write(place, shop("import vendor\nfrom . import late\n", late="") | {"vendor.py": ""})
    assert set(identity(place).parts) == OWN | {"shop/late.py"}


def test_named_packages_are_the_only_ones(tmp_path: Path) -> None:
    write(tmp_path, shop("import lib.a\nimport tools\n") | {"lib/a.py": "", "tools.py": ""})
    (found,) = survey(tmp_path, packages=("shop", "lib")).definitions
    assert set(found.parts) == OWN | {"lib/a.py"}


def test_the_engine_is_a_dependency_wherever_it_lies(tmp_path: Path) -> None:
    write(tmp_path, shop("import perdure\nfrom perdure import step\n") | {"perdure/__init__.py": FATAL})
    assert set(identity(tmp_path).parts) == OWN


def test_a_package_of_the_engine_is_versioned_by_itself(tmp_path: Path) -> None:
    files = {
        "perdure/__init__.py": FATAL,
        "perdure/api.py": FATAL,
        "perdure/demo/__init__.py": "",
        "perdure/demo/b.py": "",
    }
    files["perdure/demo/flow.py"] = "from perdure import api\nfrom perdure.demo import b\n" + FLOW
    found = survey(write(tmp_path, files), source(tmp_path, "perdure.demo.flow:order"))
    assert set(found.definitions[0].parts) == {f"perdure/demo/{name}.py" for name in ("__init__", "flow", "b")}
    assert set(found.release.manifest) == set(found.definitions[0].parts)


def test_a_package_hides_a_module_of_its_name(tmp_path: Path) -> None:
    files = shop("from . import a\n", a="x = 1\n", a__of____init__="x = 2\n")
    assert reached(tmp_path, files) == OWN | {"shop/a/__init__.py"}


# ------------------------------------------------------------------------------------------------- computed imports

COMPUTED = {
    "a variable": "import importlib\nimportlib.import_module(name)",
    "a function handed on": "from importlib import import_module\nlist(map(import_module, names))",
    "another name of the function": "import importlib\nload = importlib.import_module\nload('x')",
    "an f-string": "from importlib import import_module\nimport_module(f'shop.{name}')",
    "a sum": "from importlib import import_module\nimport_module('shop.' + name)",
    "a format": "from importlib import import_module\nimport_module('shop.{}'.format(name))",
    "relative": "from importlib import import_module\nimport_module('.' + name, __package__)",
    "built in": "__import__(name)",
    "a file": "import importlib.util\nimportlib.util.spec_from_file_location('x', path)",
    "relative to a variable": "from importlib import import_module\nimport_module('.late', package)",
}


@pytest.mark.parametrize("line", COMPUTED.values(), ids=COMPUTED)
def test_a_computed_import_widens_identity(tmp_path: Path, line: str) -> None:
    write(tmp_path, shop(f"\n{line}\n", late="", other=""))
    found = survey(tmp_path)
    assert set(found.definitions[0].parts) == OWN | {"shop/late.py", "shop/other.py"}
    where = 3 if "\n" in line else 2
    (notice,) = found.notices
    assert notice.code == "dynamic_import"
    assert notice.text == (
        f"shop/flow.py:{where} imports a module by a computed name; order is now bound to the whole package. "
        "Narrow it with include=[...]."
    )


def test_a_computed_import_out_of_reach_widens_nothing(tmp_path: Path) -> None:
    assert reached(tmp_path, shop("", late="__import__(name)\n")) == OWN


def test_the_known_part_of_a_computed_name_is_taken_in(tmp_path: Path) -> None:
    files = shop("from importlib import import_module\nimport_module(f'plugins.{name}')\n")
    files |= {"plugins/a.py": "import tools\n", "plugins/b.py": "", "tools.py": "", "beside.py": ""}
    assert reached(tmp_path, files) == OWN | {"plugins/a.py", "plugins/b.py", "tools.py"}


def test_a_wholly_computed_name_takes_in_what_lies_beside(tmp_path: Path) -> None:
    files = {
        "flow.py": "__import__(name)\n" + FLOW,
        "plugin.py": "",
        "pack/__init__.py": "",
        "pack/a.py": "",
        "doc/x.py": "",
    }
    parts = identity(write(tmp_path, files), "flow:order").parts
    assert set(parts) == {"flow.py", "plugin.py", "pack/__init__.py", "pack/a.py"}


def test_include_names_what_a_computed_import_may_lead_to(tmp_path: Path) -> None:
    files = shop("__import__(name)\n", p__of__a="from shop import late\n", p__of__b="", late="", other="")
    write(tmp_path, files)
    found = survey(tmp_path, source(tmp_path, include=("shop.p.*",)))
    assert set(found.definitions[0].parts) == OWN | {"shop/p/a.py", "shop/p/b.py", "shop/late.py"}
    assert not found.notices


def test_an_empty_include_means_nothing_more(tmp_path: Path) -> None:
    assert reached(tmp_path, shop("__import__(name)\n", late=""), include=()) == OWN


@pytest.mark.parametrize("pattern", ["shop.q.*", "nowhere.*", "*"[:0], "shop.plugin"])
def test_an_include_that_matches_nothing_is_refused(tmp_path: Path, pattern: str) -> None:
    write(tmp_path, shop("", late=""))
    with pytest.raises(InvalidValue, match="matches no first-party module"):
        identity(tmp_path, include=(pattern,))


# --------------------------------------------------------------------------------------------- files as they may lie


def test_the_bootstrap_belongs_to_it(tmp_path: Path) -> None:
    write(tmp_path, shop("", boot="from shop import late\n", late="x = 1\n"))
    (found,) = survey(tmp_path, bootstrap="shop.boot:init").definitions
    assert set(found.parts) == OWN | {"shop/boot.py", "shop/late.py"}
    (other,) = survey(tmp_path, bootstrap="shop.boot:other").definitions
    assert found.sha256 != other.sha256


def test_the_place_of_the_checkout_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = shop("from . import late\n", late="x = 1\n") | {"shop/a.txt": "text"}
    one = identity(write(tmp_path / "one", files)).sha256
    monkeypatch.chdir(tmp_path)
    assert identity(write(tmp_path / "far" / "away", files)).sha256 == one


def test_links_are_followed_and_circles_are_not(tmp_path: Path) -> None:
    write(tmp_path, shop("from . import late\nfrom shop.linked import deep\n"))
    write(tmp_path / "elsewhere", {"late.py": "x = 1\n", "linked/deep.py": ""})
    (tmp_path / "shop" / "late.py").symlink_to(tmp_path / "elsewhere" / "late.py")
    (tmp_path / "shop" / "linked").symlink_to(tmp_path / "elsewhere" / "linked")
    (tmp_path / "shop" / "circle").symlink_to(tmp_path / "shop")
    (tmp_path / "shop" / "nowhere.py").symlink_to(tmp_path / "missing.py")
    parts = identity(tmp_path).parts
    assert set(parts) == OWN | {"shop/late.py", "shop/linked/deep.py"}
    assert parts["shop/late.py"] == scan(b"x = 1\n").canonical


def test_what_is_no_file_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path, shop("from . import late\n"))
    os.mkfifo(tmp_path / "shop" / "late.py")
    assert set(identity(tmp_path).parts) == OWN


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, shop("from . import late\n", late=""))
    read = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == "late.py":
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(NoSource, match=r"no source for module shop\.late \(Permission denied\)"):
        identity(tmp_path)


def test_a_name_that_no_snapshot_can_hold_is_refused(tmp_path: Path) -> None:
    write(tmp_path, shop(""))
    (tmp_path / "shop" / "a\\b.txt").write_text("x")
    with pytest.raises(NoSource, match="no plain path"):
        identity(tmp_path)


def test_a_byte_order_mark_and_an_old_encoding_are_read(tmp_path: Path) -> None:
    plain = identity(write(tmp_path / "a", shop("NAME = 'é'\n"))).sha256
    files: dict[str, str | bytes] = {**shop(""), "shop/flow.py": b"\xef\xbb\xbf" + f"NAME = 'é'\n{FLOW}".encode()}
    assert identity(write(tmp_path / "b", files)).sha256 == plain
    files["shop/flow.py"] = f"# coding: latin-1\nNAME = 'é'\n{FLOW}".encode("latin-1")
    assert identity(write(tmp_path / "c", files)).sha256 == plain


def test_a_virtual_environment_inside_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path, shop("") | {"shop/env/pyvenv.cfg": "", "shop/env/lib/x.txt": "x", "shop/.hidden/y.txt": "y"})
    assert set(survey(tmp_path).release.manifest) == OWN


def test_a_module_for_a_later_python_goes_by_its_bytes(tmp_path: Path) -> None:
    write(tmp_path, shop("try:\n    from . import late\nexcept SyntaxError: ...\n", late="x = = 1\n"))
    before = identity(tmp_path)
    write(tmp_path, {"shop/late.py": "x = = 2\n"})
    assert identity(tmp_path).sha256 != before.sha256


def test_other_workflows_of_the_program_do_not_count(tmp_path: Path) -> None:
    """Two that are surveyed together have the identities they have alone."""
    files = shop("from . import late\n", late="") | {
        "flow.py": "import lib, shop\n__import__(name)\n" + FLOW,
        "lib.py": "",
    }
    write(tmp_path, files)
    one, two = source(tmp_path), source(tmp_path, "flow:order")
    alone = [survey(tmp_path, each).definitions[0].sha256 for each in (one, two)]
    together = [found.sha256 for found in survey(tmp_path, two, one).definitions]
    assert together == alone[::-1]
