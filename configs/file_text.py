"""The text of a config, or of a file that is read into one."""

from __future__ import annotations

from pathlib import Path

from configs.yaml_text import LONGEST
from mechanisms.errors import ConfigNotFoundError


def read_text(path: Path, where: str) -> str:
    """UTF-8 text with line feeds, without a byte order mark.

    Args:
        path: Of the file.
        where: What to call it in errors.

    Raises:
        ConfigNotFoundError: It cannot be read, is too long, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LONGEST + 1)  # what is longer is not held
        if len(content) <= LONGEST:
            text = content.decode("utf-8-sig")
            return text.replace("\r\n", "\n").replace("\r", "\n")
        problem = f"The file is longer than {LONGEST // 10**6} MB. No config is; is this the data?"
    except UnicodeDecodeError:
        problem = "The file is not UTF-8 text."
    except ValueError:
        problem = "This is not a path."
    except FileNotFoundError:
        problem = "There is no such file."
    except OSError as error:
        problem = f"The file cannot be read ({error.strerror})."
    raise ConfigNotFoundError(problem, where=where)
