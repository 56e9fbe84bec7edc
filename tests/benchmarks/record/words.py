"""What the summary says that no run can: what peers protect, what is quoted, and why."""

from __future__ import annotations

OPENING = """\
# Speed, memory, and other libraries

Written by

    python -m tests.benchmarks.page --peers

from [the history](history.jsonl), which has a line for every run; the same command draws a page
with charts in `build/benchmarks`. Every figure is the newest of its case, from the run that its
column *of* names. Figures from a machine that had other work too are marked *busy*: their seconds
are too long, and not comparable. A ratio is to a baseline of the same run, of processor time unless
it says otherwise; one that changed by more than a tenth since the run before is set in **bold**.
Commits that the repository does not have are among those that were joined into e3858bc20a.
"""

ADJACENCIES = {
    "OpenDP": (
        "declared by the user: `unit_of(contributions=1)`, the symmetric distance, is add/remove; "
        "its means are of a dataset of known size with one record replaced, which is a distance of "
        "2"
    ),
    "mbi": (
        "the package has estimators only. AIM and MST are written for these benchmarks from the "
        "papers, with the settings of its repository, whose mechanisms are unbounded by default "
        "(`bounded=False`): add/remove"
    ),
    "dpmm": (
        "not named in its documentation; adapted from the same repository, with the noise of "
        "add/remove (a table has sensitivity 1)"
    ),
    "diffprivlib": (
        "not named in its documentation; the sensitivity 1 of its histograms is that of add/remove,"
        " (upper − lower)/n of its means that of a replaced record with n public"
    ),
    "dp-accounting": (
        "declared by the user, add/remove by default; here the noise and the sensitivity of every "
        "part are given"
    ),
}

PEERS = """\
## Other libraries

Each is in an environment of its own (`tests/benchmarks/peers`), on the same codes, bins and budget:
δ = 1e-6 (0 where the noise is Laplace's), means over the seeds that were run. Most of them protect
a record that is *added or removed*; this project one that is *replaced*, with n public, which takes
√2 times as much Gaussian noise on a table and twice as much Laplace noise. So ours stands there
twice: by default, and with `adjacency: add_remove`, under which n is private. *Ours/theirs*
compares errors under the peer's own adjacency; at most 0.90 is asked for. Where fewer runs were
made than asked for, it says why. All AIM have the workload of all pairs.

| library | adjacency, and where it says so |
|---|---|
{adjacencies}

diffprivlib 0.6.6 cannot be imported with the scikit-learn that pip chooses for it (1.9: `cannot
import name 'DOUBLE' from 'sklearn.tree._tree'`), and OpenDP's `synthesize` needs pandas, which its
extra `mbi` does not bring; the requirements here pin both. OpenDP's extra uses mbi 1.1.0, whose
default `method="round"` of drawing records orders every column alike within the cells of another,
so that columns which are linked only through a third become nearly functions of each other: on
census2000 at ε = 3 the pairs that MST measured are within .016, and one that it did not is .46 off
(in 32 and in 64 bits). So OpenDP is asked for its default and for `method="sample"` (*sampled*),
which adds the noise of drawing. The parts that its MST divides ρ into may add up to more than ρ by
one unit of rounding, which its own check refuses (on happiness at all three ε); it is then asked
for some trillionths less.
""".format(adjacencies="\n".join(f"| {name} | {words} |" for name, words in ADJACENCIES.items()))

WHY = """\
### Where ours is not a tenth better

- *Counts*: everybody adds discrete noise of one scale to every cell, and of one count nothing
  better than discrete Laplace noise is possible, whatever is known beforehand (Ghosh, Roughgarden
  and Sundararajan 2009, arXiv 0811.2841). What is left is post-processing. Each side stands with
  the better of its columns. Ours gains most where noise decides, because it takes the total as
  known: cutting off below 0 invents as many records as it cuts off. It gains nothing where most
  cells have a noise of exactly 0 (two columns, ε = 3): no cell is likelier than another to be
  wrong, so a projection, which spreads the sum of the noise over all, is worse than the estimates.
- *Means*, at δ = 1e-6: ours is one release of two moments with Gaussian noise, so that an interval
  that covers comes with it; the others' Laplace noise serves one number without an interval. At
  these n both are far below the sampling error.
- *Accounting*: both are proven upper bounds of one exact value, so they can only agree.
"""

QUOTED = """\
### Quoted, not measured here

SWIFT (github.com/google/dpsynth) is in no package registry. From measurements made for this project
before, three seeds each, some of its settings below its defaults (cliques of 10⁵ cells, 1000
iterations); mean total variation of pairs at ε = 0.3, 1 and 3:

| | adjacency | census2000 | happiness |
|---|---|---|---|
| SWIFT | replace-one, 1.09 × the budget in its favour | .0712, .0449, .0253 in 13–23 s | |
| SWIFT | add/remove | .0658, .0408, .0200 | .0429, .0275, .0197 in 74–117 s, 1.6–1.9 GB |
| AIM, mbi's repository | add/remove | .0689, .0427, .0230 in 20–39 s | over 20 min, ended |
"""
