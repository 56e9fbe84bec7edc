"""Where a release comes from, and how whoever has it can check that."""

from __future__ import annotations

from tasks.pages.blocks import Fact, Facts, Prose, Section
from tasks.report.marked import code
from tasks.report.public_words import PublicWords


def provenance_section(words: PublicWords) -> Section:
    """How to verify, and the numbers that this goes by."""
    manifest = words.manifest
    lead = Prose(
        [
            "To check that these are the files which were released, unchanged, run statpress "
            "verify on the folder that holds them. It needs neither the data nor the "
            "publisher: manifest.json has the size and hash of every file, and a seal over all.",
            "If there is a file signature.json, the publisher has signed that seal: with --key and "
            "the publisher's public key the same command says whether it was they.",
        ]
    )
    rows = [
        Fact("Command", code("statpress verify FOLDER"), "The folder is that of this page."),
        Fact("Run", code(manifest["run_id"]), f"Made at {manifest['created']}."),
    ]
    entry = manifest.get("ledger_entry")
    if entry:
        rows.append(
            Fact(
                "Entry in the publisher's ledger",
                code(f"{entry['sequence']}: {entry['hash']}"),
                "Where the privacy loss was charged before anything was drawn; the ledger is a "
                "chain of hashes, and its publisher can show this entry.",
            )
        )
    source = words.source_kind()
    if source is not None:
        rows.append(Fact("Counted from", source, "The confidential records; none is copied here."))
    rows += [
        Fact(
            "Hash of the config",
            code(manifest["config_sha256"]),
            "SHA-256 of config.yaml, which says everything that was asked for.",
        ),
        Fact(
            "Made with",
            ", ".join(f"{name} {version}" for name, version in manifest["versions"].items()),
        ),
    ]
    if manifest["overrides"]:
        listed = [f"{each['key']} = {each['value']}" for each in manifest["overrides"]]
        rows.append(Fact("Set apart from the config", "; ".join(listed)))
    if manifest.get("supersedes"):
        rows.append(Fact("Follows the release with the seal", code(manifest["supersedes"])))
    return Section("provenance", "Origin, and how to verify", [lead, Facts(rows)])
