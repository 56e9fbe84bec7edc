"""Where the guarantee of a mechanism is proven: works, and places in them.

Every work stands in the references of mechanisms/README.md, with the same DOI or arXiv number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Citation:
    """A work, or a place in one.

    Attributes:
        work: Authors, year and title.
        doi: Its DOI, empty if it has none.
        arxiv: Its arXiv number, empty if it has none.
        part: The place: theorem, algorithm or section; empty for the whole work.
    """

    work: str
    doi: str = ""
    arxiv: str = ""
    part: str = ""

    def at(self, part: str) -> Citation:
        """A place in the work."""
        return replace(self, part=part)

    def describe(self) -> dict[str, str]:
        """What is known of it, by name."""
        return {name: value for name, value in vars(self).items() if value}


PROOF = Citation("statpress, mechanisms/README.md: methods, guarantees and proofs")
"""Proofs of this project's own, by section and theorem."""

ALDA_RUBINSTEIN = Citation("Aldà and Rubinstein 2017, The Bernstein mechanism", arxiv="1507.04499")
BALLE_BARTHE_GABOARDI = Citation(
    "Balle, Barthe and Gaboardi 2018, Privacy amplification by subsampling", arxiv="1807.01647"
)
BALLE_WANG = Citation("Balle and Wang 2018, Improving the Gaussian mechanism", arxiv="1805.06530")
CANONNE_KAMATH_STEINKE = Citation(
    "Canonne, Kamath and Steinke 2020, The discrete Gaussian for differential privacy",
    arxiv="2004.00010",
)
CESAR_ROGERS = Citation(
    "Cesar and Rogers 2021, Bounding, concentrating, and truncating", arxiv="2004.07223"
)
DELVING = Citation("Delving into Bootstrapping for Differential Privacy, under review")
DONG_ROTH_SU = Citation(
    "Dong, Roth and Su 2022, Gaussian differential privacy", doi="10.1111/rssb.12454"
)
DWORK = Citation(
    "Dwork, McSherry, Nissim and Smith 2006, Calibrating noise to sensitivity",
    doi="10.1007/11681878_14",
)
GHOSH = Citation(
    "Ghosh, Roughgarden and Sundararajan 2012, Universally utility-maximizing privacy mechanisms",
    arxiv="0811.2841",
)
HAY = Citation(
    "Hay, Rastogi, Miklau and Suciu 2010, Boosting the accuracy of differentially private"
    " histograms",
    arxiv="0904.0942",
)
MCSHERRY_TALWAR = Citation("McSherry and Talwar 2007, Mechanism design via differential privacy")
SMITH = Citation(
    "Smith 2011, Privacy-preserving statistical estimation with optimal convergence rates",
    doi="10.1145/1993636.1993743",
)
SMITH_THAKURTA = Citation(
    "Smith and Thakurta 2022, Fully adaptive composition for Gaussian differential privacy",
    arxiv="2210.17520",
)
WANG_CHENG_AWAN = Citation(
    "Wang, Cheng and Awan 2022, Differentially private bootstrap", arxiv="2210.06140"
)
WASSERMAN_ZHOU = Citation(
    "Wasserman and Zhou 2010, A statistical framework for differential privacy",
    doi="10.1198/jasa.2009.tm08651",
)
