"""Write the made-up records of people and of visits, the same on every call."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

DISTRICTS = ("n1", "n2", "s1", "s2", "isle")
REGIONS = ("north", "south", "east", "")
N = 400
UNITS = 150


def mixed(number: int, modulus: int, salt: int) -> int:
    """A number below the modulus that looks drawn; nobody's generator is asked."""
    return (number * 7919 + salt * 104729 + (number * number + salt) % 1009) % 10007 % modulus


def write(path: Path, header: list[str], rows: list[list[object]]) -> None:
    """Write one CSV file; an absent value is an empty field."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def main(folder: Path) -> None:
    """Make all values from the number of their record."""
    people: list[list[object]] = []
    for i in range(N):
        age = mixed(i, 90, 1)
        pay: object = 0 if age < 20 else mixed(i, 50, 2) + mixed(i, 500, 3) / 10
        born = f"{1950 + mixed(i, 20, 4)}-{1 + mixed(i, 12, 5):02}-15"
        trained, sex = ("no", "yes")[mixed(i, 3, 6) % 2], ("f", "m")[i % 2]
        hours = "" if mixed(i, 9, 7) == 0 else mixed(i, 41, 8)
        region = REGIONS[mixed(i, 4, 9)] if i % 80 else "abroad"
        people.append([region, age, pay, born, trained, sex, hours])
    write(
        folder / "people.csv", ["region", "age", "pay", "born", "trained", "sex", "hours"], people
    )
    visits = [
        [f"u{unit}", ("clinic", "home")[mixed(unit, 2, 10 + k)], mixed(unit, 50, 20 + k)]
        for unit in range(UNITS)
        for k in range(1 + mixed(unit, 5, 30))
    ]
    write(folder / "visits.csv", ["person", "place", "minutes"], visits)
    lived = [
        [DISTRICTS[mixed(i, 30, 40) % 7 % 5], mixed(i, 90, 41), ("f", "m")[i % 2]] for i in range(N)
    ]
    write(folder / "districts.csv", ["district", "age", "sex"], lived)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
