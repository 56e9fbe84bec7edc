"""Write the made-up records of people and of visits, the same on every call."""

from __future__ import annotations

import csv
import random
import sys
from pathlib import Path

REGIONS = ("north", "south", "east", None)


def write(path: Path, header: list[str], rows: list[list[object]]) -> None:
    """Write one CSV file; an absent value is an empty field."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def main(folder: Path) -> None:
    """Draw all values independently of one another, from a fixed seed."""
    chance = random.Random(400)
    people: list[list[object]] = []
    for _ in range(400):
        age = chance.randint(0, 89)
        pay = 0 if age < 20 else round(chance.triangular(0, 100, 35), 1)
        born = f"{chance.randint(1950, 1969)}-{chance.randint(1, 12):02}-15"
        trained = chance.choice(("no", "yes"))
        people.append([chance.choice(REGIONS), age, pay, born, trained])
    write(folder / "people.csv", ["region", "age", "pay", "born", "trained"], people)
    visits = [
        [f"u{unit}", chance.choice(("clinic", "home")), chance.randint(0, 49)]
        for unit in range(150)
        for _ in range(chance.randint(1, 5))
    ]
    write(folder / "visits.csv", ["person", "place", "minutes"], visits)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
