"""Trained models as files: what is written is read, and anything else is one error with the file and the field."""

import io
import json
import zipfile

import numpy as np
import pytest

from autofuse.cost_models.covariates import COLUMNS
from autofuse.cost_models.learned.trained import load, save
from autofuse.errors import ModelError
from tests.fixtures.trainedmodels import trained_model


@pytest.fixture
def card(tmp_path):
    path = tmp_path / "some" / "cpu.json"
    save(trained_model(), path)
    return path


def rewrite(card, **changes):
    """Change the card; a field that becomes None is left out."""
    data = {**json.loads(card.read_text()), **changes}
    card.write_text(json.dumps({name: value for name, value in data.items() if value is not None}))


def repack(card, **changes):
    """Change arrays of the archive, and the card with it; an array that becomes None is left out."""
    archive = card.with_suffix(".npz")
    with np.load(archive) as found:
        arrays = {name: array for name, array in {**found, **changes}.items() if array is not None}
    np.savez(archive, **arrays)
    seal(card)


def seal(card):
    import hashlib

    rewrite(card, sha256=hashlib.sha256(card.with_suffix(".npz").read_bytes()).hexdigest())


def test_what_is_written_is_read(card):
    written, read = trained_model(), load(card)
    assert read.card == written.card
    assert read.digest == written.digest
    rows = np.random.default_rng(1).normal(size=(50, len(COLUMNS)))
    for found, expected in zip(read.predict(rows), written.predict(rows), strict=True):
        assert found.tolist() == expected.tolist()


def test_the_same_model_is_the_same_bytes(card, tmp_path):
    save(trained_model(), tmp_path / "cpu.json")
    for suffix in (".json", ".npz"):
        assert (tmp_path / "cpu.json").with_suffix(suffix).read_bytes() == card.with_suffix(suffix).read_bytes()


def test_a_correction_is_bounded(card):
    model = load(card)
    mean, sigma = model.predict(np.full((1, len(COLUMNS)), 1e6))
    assert np.abs(mean) <= model.card.most_log
    assert sigma > 0


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"format": 1}, "format"),
        ({"format": None}, "format"),
        ({"feature_version": 1}, "feature_version"),
        ({"columns": ["one"]}, "columns"),
        ({"base": 3}, "base"),
        ({"base_version": None}, "base_version"),
        ({"machines": [{"backend": "abacus"}]}, "machines[0].backend"),
        ({"machines": []}, "machines: must be one machine or more"),
        ({"most_log": -1.0}, "most_log"),
        ({"spread_scale": 0.0}, "spread_scale"),
        ({"metrics": {"mape": "good"}}, "metrics.mape"),
        ({"extra": 1}, "extra"),
        ({"sha256": "0"}, "sha256"),
    ],
)
def test_a_card_of_another_version_or_a_foreign_one(card, changes, field):
    rewrite(card, **changes)
    with pytest.raises(ModelError) as raised:
        load(card)
    assert str(card.parent) in str(raised.value)
    assert field in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"\x80\x04K\x01.", b"[]", b"{}", b"nonsense", b'{"format": 1}'])
def test_a_card_that_is_none(card, content):
    card.write_bytes(content)
    with pytest.raises(ModelError, match=r"cpu\.json"):
        load(card)


@pytest.mark.parametrize("keep", [0, 10, 500])
def test_a_truncated_archive(card, keep):
    archive = card.with_suffix(".npz")
    archive.write_bytes(archive.read_bytes()[:keep])
    with pytest.raises(ModelError, match=r"cpu.npz: sha256: .*truncated"):
        load(card)
    seal(card)
    with pytest.raises(ModelError, match=r"cpu.npz: the archive: cannot be read"):
        load(card)


def test_files_that_are_not_there(card, tmp_path):
    with pytest.raises(ModelError, match=r"none\.json: cannot be read"):
        load(tmp_path / "none.json")
    card.with_suffix(".npz").unlink()
    with pytest.raises(ModelError, match=r"cpu\.npz: cannot be read"):
        load(card)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("mean_base", None),
        ("mean_base", np.zeros(2)),
        ("mean_value", np.zeros((3, 3))),
        ("mean_feature", np.zeros((3, 3), np.int16)),
        ("mean_feature", np.zeros((3, 3), np.int64)),
        ("spread_feature", np.full((20, 7), len(COLUMNS), np.int16)),
        ("spread_threshold", np.full((20, 7), np.nan)),
        ("spread_value", np.full((20, 8), np.inf)),
        ("spread_value", np.full((20, 8), "a")),
    ],
)
def test_an_archive_of_other_arrays(card, name, array):
    repack(card, **{name: array})
    with pytest.raises(ModelError, match=rf"cpu.npz: {name}"):
        load(card)


def test_nothing_is_unpickled(card):
    class Bomb:
        def __reduce__(self):
            return (exec, ("raise SystemExit('unpickled')",))

    member = io.BytesIO()
    np.save(member, np.array([Bomb()], object), allow_pickle=True)
    with zipfile.ZipFile(card.with_suffix(".npz"), "w") as archive:
        archive.writestr("mean_base.npy", member.getvalue())
    seal(card)
    with pytest.raises(ModelError, match="mean_base"):
        load(card)


def test_an_archive_that_would_fill_memory(card):
    with zipfile.ZipFile(card.with_suffix(".npz"), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mean_base.npy", b"\0" * (40 << 20))
    seal(card)
    with pytest.raises(ModelError, match="holds more than"):
        load(card)
