"""What README.md quotes."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.skipif(not (ROOT / "csrc").is_dir(), reason="these checks read the source tree")


def test_lines_quoted_of_an_op_are_in_the_files_named_above_them():
    section = (ROOT / "README.md").read_text().partition("## To add an op\n")[2].partition("\n## ")[0]
    text, quoted = "", {}
    comment = ""
    for line in "\n".join(re.findall(r"```\w+\n(.*?)```", section, re.DOTALL)).splitlines():
        inside = comment.startswith("/*") and not comment.endswith("*/")
        if inside or line.startswith(("/*", "# ")):
            comment = f"{comment} {line}" if inside or comment.startswith("#") else line
            named = re.match(r"(?:/\*|#) ([\w/.]+\.\w+)", comment)
            text = (ROOT / named[1]).read_text() if named else ""
        elif line:
            comment = ""
            quoted[line] = line in text
    assert len(quoted) == 7 and all(quoted.values()), [line for line, found in quoted.items() if not found]
