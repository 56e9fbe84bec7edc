"""The figures of a published table of counts, derived anew from what was released."""

from __future__ import annotations

from typing import Any

from statpress.tasks.products.published_counts import PublishedProduct


def rederived(product: PublishedProduct, n_records: int) -> dict[str, Any]:
    return dict(product.kind.postprocess(product, product.counts(), n_records).figures)
