"""What README.md and docs/ say there is, and what there is.

Nothing that they show is run. Of our code only tables and parsers are imported; the rest is read.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import re
import shlex
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import asa
import asa.lab.core.registry
import coscheduler.registry
from asa.cli.completion import places
from asa.cli.main import whole_parser
from asa.core import registry
from asa.core.registry import CLEAN, COMMANDS, DOCTOR, EXPLAIN, IMAGES, Registry, parse_spec
from asa.lab.core.registry import TRAININGS
from tests.definitions import OURS, ROOT, definition, parameters

KINDS = {
    item.kind: item
    for module in (registry, asa.lab.core.registry, coscheduler.registry)
    for item in vars(module).values()
    if isinstance(item, Registry)
}
OTHERS = (CLEAN, COMMANDS, DOCTOR, EXPLAIN, IMAGES, TRAININGS)
NAMED = {kind: names for kind, names in KINDS.items() if names not in OTHERS}
"""Kinds of things that users name."""
ARGUMENTS = {
    **{kind.replace(" ", "_"): kind for kind in NAMED},
    "strategies": "strategy",
    "estimators": "estimator",
    "base": "estimator",
    "rules": "sharing rule",
    "sharing": "sharing rule",
}
"""Options and arguments that take a spec, and the kind that it is of."""
COMMON = ("-h", "--help", "--json", "--log-level")
"""Options of every command, which docs/reference.md explains once."""
SEVERAL = ("dispatcher", "strategies", "estimators", "rules")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Page:
    """A page, taken apart: its fenced blocks (language, text), and what stands in backquotes outside of them."""

    path: Path
    text: str = field(repr=False)
    blocks: tuple[tuple[str, str], ...] = field(repr=False)
    spans: tuple[str, ...] = field(repr=False)

    @property
    def prose(self) -> str:
        """What stands outside of fenced blocks, in one line."""
        return " ".join(FENCE.sub("", self.text).split())

    @property
    def code(self) -> str:
        return "\n".join([*(text for _, text in self.blocks), *self.spans])

    @property
    def examples(self) -> set[str]:
        """Names that the page makes up: those of the entry points that it shows."""
        declared = {"ini": r"(?m)^    (\S+) = ", "toml": r"(?m)^([\w-]+) = \"\w+:\w+\"$"}
        return {name for kind, text in self.blocks for name in re.findall(declared.get(kind, r"(?!)"), text)}


def read(path: Path) -> Page:
    text = path.read_text()
    spans = (" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", FENCE.sub("", text)))
    return Page(path, text, tuple(FENCE.findall(text)), tuple(spans))


ROOT_PAGES = [read(ROOT / f"{name}.md") for name in ("README", "CONTRIBUTING", "SECURITY")]
PAGES = [*ROOT_PAGES, *(read(path) for path in sorted(ROOT.glob("docs/**/*.md")))]
EXAMPLES = [read(path) for path in sorted(ROOT.glob("examples/**/*.md"))]
FILES = [str(path) for top in (*OURS, "docs") for path in ROOT.glob(f"{top}/**/*.*") if "__pycache__" not in str(path)]
SOURCES = {str(path.relative_to(ROOT)): path.read_text() for top in OURS for path in ROOT.glob(f"{top}/**/*.py")}
CLASSES: dict[str, list[str]] = {}
"""Modules that have a class of that name."""
for source, code in SOURCES.items():
    for name in re.findall(r"^class (\w+)", code, re.M):
        CLASSES.setdefault(name, []).append(source)
REFERENCE = "\n".join((ROOT / "docs" / f"{name}.md").read_text() for name in ("reference", "lab/reference"))

each_page = pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=lambda page: str(page.path.relative_to(ROOT)))


def options(kind: str, name: str) -> dict[str, str]:
    """What the thing of that name may be given in a spec."""
    target = NAMED[kind].targets()[name].replace(":", ".")
    found = parameters(definition(target))
    assert found is not None, f"{target}: the parameters cannot be read"
    text = re.compile(r"\b(str|int|float|bool|Any)\b")
    return {name: kind for name, kind in found.items() if text.search(kind)}


PARSER = whole_parser()
COMMAND_TREE = {place.words: place for place in places(PARSER)}
"""Each command and part of a command, by its words."""


# What is there is told.


def test_every_public_name_is_documented() -> None:
    told = {name for page in PAGES for name in re.findall(r"\basa\.(\w+)", page.code)}
    assert sorted(set(asa.__all__) - told) == []
    for name in asa.__all__:
        assert getattr(asa, name) is not None


def test_every_command_is_documented_with_its_options() -> None:
    missing = []
    for words, place in COMMAND_TREE.items():
        command, *part = words[:2] or ("",)
        pages = [page for page in PAGES if page not in ROOT_PAGES and re.search(rf"\basa {command}\b", page.code)]
        pages = [page for page in pages if not part or re.search(rf"\b{part[0]}\b", page.code)]
        if not pages:
            missing.append(" ".join(words))
        for option in place.options:
            known = "|".join(name for name in option.names if name not in COMMON)
            if known and not any(re.search(rf"(?<![\w-])({known})(?![\w-])", page.code) for page in pages):
                missing.append(f"{' '.join(words)} {known}")
    assert missing == []


@pytest.mark.parametrize("kind", NAMED)
def test_the_reference_has_exactly_the_names_and_options_there_are(kind: str) -> None:
    heading = f"{kind}s".replace("ys", "ies")
    section = re.search(rf"^### {heading}\n(.*?)(?=^#|\Z)", REFERENCE, re.M | re.S | re.I)
    assert section, f"no page of the reference has the heading '### {heading.capitalize()}'"
    rows = [line.strip("|").split("|") for line in section[1].splitlines() if line.startswith("| `")]
    table = {row[0].strip(" `"): set(re.findall(r"`([a-z]\w*)", re.sub(r"\([^()]*\)", "", row[-1]))) for row in rows}
    assert sorted(table) == NAMED[kind].names()
    if len(rows[0]) > 2:
        for name, told in table.items():
            known = options(kind, name)
            assert set(known) - {"**"} <= told
            assert "**" in known or told <= set(known)


# What is told is there.


def lines(page: Page) -> Iterator[str]:
    """Command lines on the page, each from its first word on, without comment."""
    for kind, text in page.blocks:
        if kind != "python":
            for line in text.replace("\\\n", "").splitlines():
                bare = re.sub(r"(^|\s)#.*", "", line)
                yield from re.split(r"\s{2,}(?=asa )|&&?|;|^\$ |\"", bare)
    yield from page.spans


def commands(page: Page) -> Iterator[list[str]]:
    for line in lines(page):
        if found := re.match(r"(?:\S*/|python -m )?asa (?=[a-z-])(.*)", line.strip()):
            yield shlex.split(re.sub(r"\s>.*", "", found[1]))


def wrong_in(words: list[str], page: Page) -> Iterator[str]:
    """What is wrong with a command line of ours."""
    place, rest = COMMAND_TREE[()], iter(words)
    for word in rest:
        name = " ".join(("asa", *place.words))
        if re.match(r"--?[a-z]", word):
            given, _, value = word.partition("=")
            option = next((option for option in place.options if given in option.names), None)
            if option is None:
                yield f"{name} has no option {given}"
            elif option.takes is not None:
                yield from wrong_spec(given.lstrip("-").replace("-", "_"), value or next(rest, ""), page)
        elif (*place.words, word) in COMMAND_TREE:
            place = COMMAND_TREE[*place.words, word]
        elif place.parts:
            if word.islower():
                yield f"{name} has no {word}"
        else:
            yield from wrong_spec(" ".join(place.words), word, page)
    with contextlib.suppress(SystemExit), contextlib.redirect_stderr(None), contextlib.redirect_stdout(None):
        _, surplus = PARSER.parse_known_args(words)
        yield from (f"{name} has no place for {word}" for word in surplus)


def wrong_spec(argument: str, text: str, page: Page) -> Iterator[str]:
    """What is wrong with what is given to an argument that takes names of some kind."""
    kind, several = ARGUMENTS.get(argument), argument in SEVERAL
    for spec in () if not kind or not text else NAMED[kind].split([text]) if several else [text]:
        name, given = parse_spec(spec)
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name) or name in page.examples:
            continue  # a placeholder, or the page's own
        if name not in NAMED[kind]:
            yield f"there is no {kind} {name}"
        elif "**" not in (known := options(kind, name)):
            yield from (f"{kind} {name} has no option {option}" for option in given if option not in known)


@each_page
def test_commands_and_their_options_are_there(page: Page) -> None:
    assert [wrong for words in commands(page) for wrong in wrong_in(words, page)] == []


@each_page
def test_names_and_their_options_are_there(page: Page) -> None:
    wrong = []
    for argument, text in re.findall(r"\b(\w+)=\"([^\"]*)\"", page.code):
        wrong += wrong_spec(argument, text, page)
    for span in page.spans:
        if re.fullmatch(r"[a-z][\w-]*:[a-z_]+(=[^\s]+)?", span):
            kinds = [kind for kind, names in NAMED.items() if span.partition(":")[0] in names]
            found = [list(wrong_spec(kind.replace(" ", "_"), span, page)) for kind in kinds]
            wrong += [] if not found or [] in found else found[0]
    assert wrong == []


def programs(page: Page) -> Iterator[ast.Module]:
    for kind, text in page.blocks:
        if kind == "python":
            examples = doctest.DocTestParser().get_examples(text)
            source = "".join(example.source for example in examples) if examples else textwrap.dedent(text)
            yield ast.parse(source)


@each_page
def test_imports_attributes_and_arguments_in_python_are_there(page: Page) -> None:
    wrong = []
    for tree in programs(page):
        homes = {"asa": "asa"}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OURS:
                homes |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
                wrong += [home for home in homes.values() if definition(home) is None]
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "asa":
                wrong += [] if node.attr in asa.__all__ else [f"asa.{node.attr}"]
            if isinstance(node, ast.Call):
                first, _, rest = ast.unparse(node.func).partition(".")
                home = ".".join(filter(None, [homes.get(first, ""), rest]))
                known = parameters(definition(home)) if first in homes else None
                if known is not None and "**" not in known:
                    wrong += [f"{home}({item.arg}=)" for item in node.keywords if item.arg and item.arg not in known]
    assert wrong == []


@each_page
def test_modules_files_and_targets_are_there(page: Page) -> None:
    wrong = []
    groups = set(re.findall(r"^(asa\.\w+) =$", (ROOT / "setup.cfg").read_text(), re.M)) | {"asa.self"}  # a cgroup
    files = {Path(file).name for file in FILES}
    for span in page.spans:
        dotted = span.partition("(")[0]
        if re.fullmatch(rf"({'|'.join(OURS)})(\.\w+)+", dotted) and dotted not in files:
            wrong += [] if definition(dotted) is not None or dotted in groups else [dotted]
        if re.fullmatch(r"\w+(/[\w.-]+)+\.(py|md|json|txt)", span):
            theirs = not any(f"/{span.partition('/')[0]}/" in file for file in FILES)
            wrong += [] if theirs or any(file.endswith(f"/{span}") for file in FILES) else [span]
        if found := re.fullmatch(r"([\w/]+\.py)::(test_\w+)", span):
            path = ROOT / "tests" / found[1]
            wrong += [] if path.is_file() and f"def {found[2]}(" in path.read_text() else [span]
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    for line in lines(page):
        if found := re.match(r"make ([a-z][\w-]*)", line.strip()):
            wrong += [] if found[1] in targets else [f"make {found[1]}"]
        if found := re.match(r"python (?:-m )?((?:benchmarks|tests)[./]\S+)(.*)", line.strip()):
            wrong += scripted(found[1], found[2])
    assert wrong == []


@each_page
def test_names_are_in_the_modules_that_are_named_beside_them(page: Page) -> None:
    """In ``one`, `Two.three` (`walk/module.py`)`` the last name is one of that module, or of one that ends so."""
    found = re.findall(r"`((?:\w+\.)?\w+)(?:\(\))?` \(`((?:\w+/)*\w+\.py)`", page.prose)
    wrong = [
        f"{name} ({file})"
        for name, file in found
        if not any(has(path, name) for path in SOURCES if f"/{path}".endswith(f"/{file}"))
    ]
    assert wrong == []


def has(path: str, name: str) -> bool:
    """Whether the module says how that is defined: by itself, in a class of that name, or in one that it inherits."""
    first, _, last = name.rpartition(".")
    text = SOURCES[path]
    made = re.search(rf"^\s*((async )?def|class) {last}\b|^\s*(self\.)?{last}\b( =|: |, \w.* = )", text, re.M)
    if not first or path.endswith(f"/{first}.py"):
        return made is not None
    head = re.search(rf"^class {first}\b(.*?):$", text, re.M | re.S)
    bases = re.findall(r"\w+", head[1]) if head else []
    return bool(head and made) or any(has(each, f"{base}.{last}") for base in bases for each in CLASSES.get(base, ()))


@each_page
def test_members_of_our_classes_are_there(page: Page) -> None:
    """Of two classes of one name, one has it."""
    wrong = []
    for span in page.spans:
        if (found := re.fullmatch(r"(_?[A-Z]\w*)\.(\w+)(\(.*\))?", span)) and found[1] in CLASSES:
            wrong += [] if any(has(path, f"{found[1]}.{found[2]}") for path in CLASSES[found[1]]) else [span]
    assert wrong == []


def scripted(name: str, arguments: str) -> list[str]:
    """What is wrong with a call of one of our scripts; their options are looked for in their text."""
    path = ROOT / (name if name.endswith(".py") else name.replace(".", "/"))
    files = sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    if not all(file.is_file() for file in files):
        return [name]
    text = "".join(file.read_text() for file in files)
    return [f"{name} {option}" for option in re.findall(r"\s(--[a-z-]+)", arguments) if f'"{option}"' not in text]


@each_page
def test_links_lead_somewhere(page: Page) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.text):
        target, _, anchor = link.partition("#")
        if "://" in link:
            continue
        there = (page.path.parent / target).resolve() if target else page.path
        assert there.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", there.read_text(), re.M)
            assert anchor in [re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in headings], link


CHECKS = {
    test_commands_and_their_options_are_there: [
        "`asa statistics`",
        "`asa runs A`",
        "`asa run A --polite`",
        "`asa pool rows`",
    ],
    test_names_and_their_options_are_there: ['`strategy="cheap"`', "`easy:depth=2`", "`asax:expert=cpu`"],
    test_imports_attributes_and_arguments_in_python_are_there: [
        "```python\nfrom asa.core.job import Jobs\n```",
        "```python\nimport asa\n\nasa.walk()\n```",
        "```python\nimport asa\n\nasa.run(1, queue=2)\n```",
    ],
    test_modules_files_and_targets_are_there: [
        "`asa.core.nothing`",
        "`asa/no.py`",
        "`make tea`",
        "`python -m benchmarks.no`",
    ],
    test_names_are_in_the_modules_that_are_named_beside_them: [
        "`nothing` (`core/job.py`)",
        "`JobRequest.colour` (`core/job.py`)",
        "`JobRequest` (`core/stage.py`)",
    ],
    test_members_of_our_classes_are_there: ["`JobRequest.colour`", "`Plan.sing(now)`"],
    test_links_lead_somewhere: ["[there](nowhere.md)", "# Here\n\n[there](#where)"],
}


@pytest.mark.parametrize(("check", "text"), [(check, text) for check, texts in CHECKS.items() for text in texts])
def test_mistakes_are_found(check: Callable[[Page], None], text: str, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(f"# Page\n\n{text}\n")
    with pytest.raises(AssertionError):
        check(read(path))
