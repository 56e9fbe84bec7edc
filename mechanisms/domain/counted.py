"""What the source was counted into, and how each product finds its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mechanisms.domain.coded_columns import CodedColumns, SelectedColumns
from mechanisms.domain.contingency_table import ContingencyTable


@dataclass(frozen=True, repr=False)
class Counted:
    """Everything that was counted of a source; private.

    Attributes:
        joint: Contingency tables, of which one has all columns of each product that needs one.
        coded: The codes of the records, if a product needs them.
    """

    joint: tuple[ContingencyTable, ...] = ()
    coded: CodedColumns | None = None

    def __repr__(self) -> str:
        return "Counted()"

    def marginal(self, names: Iterable[str]) -> ContingencyTable:
        """The contingency table of some columns, in the order given.

        Raises:
            LookupError: They were not counted together.
        """
        wanted = tuple(names)
        for table in self.joint:
            if set(wanted) <= set(table.domain.names):
                return table.marginal(wanted)
        raise LookupError("no joint table has these columns")

    def columns(self, names: Iterable[str]) -> CodedColumns:
        """The codes of some columns, in the order given.

        Raises:
            LookupError: They were not kept.
        """
        wanted = tuple(names)
        if self.coded is None or not set(wanted) <= set(self.coded.domain.names):
            raise LookupError("the codes of these columns were not kept")
        return SelectedColumns(self.coded, wanted)
