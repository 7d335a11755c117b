from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import check_said, exchanges, follow, steps

PAGE = """
Save this as `one.txt`:

```text
1
```

Here is more.

```python
assert open("one.txt").read() == "1\\n"
```

```console
$ cat one.txt \\
    one.txt
7
3
$ echo run-abc123 took 3 min 5 s
run-123456 took 8 h
$ false    # fails
```

```sh
exit 1
```
"""


def test_a_page_is_followed(tmp_path: Path) -> None:
    assert [(step.language, step.file) for step in steps(PAGE)] == [
        ("text", "one.txt"), ("python", ""), ("console", ""), ("sh", ""),
    ]  # fmt: skip
    assert follow(PAGE, tmp_path) == 4


@pytest.mark.parametrize(
    ("true", "false"),
    [
        ("7\n3\n", "7\n"),
        ("took 8 h", "take 8 h"),
        ("$ false    # fails", "$ false"),
        ("$ false    # fails", "$ true    # fails"),
        ('== "1', '== "2'),
    ],
)
def test_wrong_pages_are_found(tmp_path: Path, true: str, false: str) -> None:
    with pytest.raises(AssertionError):
        follow(PAGE.replace(true, false), tmp_path)


def test_lines_may_be_left_out() -> None:
    (exchange,) = exchanges("$ x\na\n...\nz ... 1\n")
    assert exchange == ("x", "a\n...\nz ... 1\n")
    check_said("x", "a\nb\nc\nz anything 2\n", exchange[1])
    with pytest.raises(AssertionError):
        check_said("x", "a\nb\nc\nz anything\n", exchange[1])
