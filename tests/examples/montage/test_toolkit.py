import pickle
import shutil
import sys

import pytest


def fake(tmp_path, monkeypatch, montage, script):
    """Put programs on PATH that all run one shell script."""
    shell = shutil.which("sh")
    for program in montage.toolkit.PROGRAMS:
        path = tmp_path / program
        path.write_text(f"#!{shell}\n{script}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ('[struct stat="OK", module="mAdd", time=2]\n', {"stat": "OK", "module": "mAdd", "time": 2.0}),
        ('[struct stat="OK", a=-8.5e-08, b=2,  c=3]', {"stat": "OK", "a": -8.5e-08, "b": 2.0, "c": 3.0}),
        ('[struct stat="ERROR", msg="No, [x] is not\n"]', {"stat": "ERROR", "msg": "No, [x] is not"}),
        ('info\n[struct stat="A"]\n[struct stat="B", bunit=""]\n', {"stat": "B", "bunit": ""}),
        ("Segmentation fault", {}),
        ("", {}),
    ],
)
def test_parse_status(montage, text, status):
    assert montage.toolkit.parse_status(text) == status


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ('noise\n{"status": "0", "count": 9, "a": -8.5e-08}\n', {"stat": "OK", "count": 9, "a": -8.5e-08}),
        ('{"status": "1", "msg": "No {overlap}"}', {"stat": "ERROR", "msg": "No {overlap}"}),
        ("Traceback", {}),
        ("", {}),
    ],
)
def test_parse_answer(montage, text, status):
    assert montage.toolkit.parse_answer(text) == status


def test_the_program_s_message_is_kept(montage, tmp_path, monkeypatch):
    fake(tmp_path, monkeypatch, montage, """echo '[struct stat="ERROR", msg="Invalid header"]'; exit 1""")
    with pytest.raises(montage.toolkit.MontageError, match=r"^mOverlaps: Invalid header$"):
        montage.toolkit.mOverlaps(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize("count", ["failed", "badfits", "badwcs"])
def test_ok_is_not_enough_when_something_was_left_out(montage, tmp_path, monkeypatch, count):
    fake(tmp_path, monkeypatch, montage, f"""echo '[struct stat="OK", count=7, {count}=2]'""")
    with pytest.raises(montage.toolkit.MontageError, match=f"mOverlaps: {count} = 2: part of the input"):
        montage.toolkit.mOverlaps(tmp_path / "a", tmp_path / "b")


def test_images_that_the_table_lacks_are_noticed(montage, tmp_path, monkeypatch):
    fake(tmp_path, monkeypatch, montage, """echo '[struct stat="OK", count=1, badfits=0, badwcs=0]'""")
    with pytest.raises(montage.toolkit.MontageError, match=r"mImgtbl: 1 images found in .*, not 2"):
        montage.toolkit.mImgtbl([tmp_path / "a.fits", tmp_path / "b.fits"], tmp_path / "t.tbl")


def test_a_program_that_dies_silently_is_an_error(montage, tmp_path, monkeypatch):
    fake(tmp_path, monkeypatch, montage, "echo 'cannot open display' >&2; exit 3")
    with pytest.raises(montage.toolkit.MontageError, match="exit code 3 and no status: cannot open display"):
        montage.toolkit.mOverlaps(tmp_path / "a", tmp_path / "b")


def test_an_exit_code_outweighs_ok(montage, tmp_path, monkeypatch):
    fake(tmp_path, monkeypatch, montage, """echo '[struct stat="OK"]'; exit 4""")
    with pytest.raises(montage.toolkit.MontageError, match=r"mOverlaps: .*exit code 4"):
        montage.toolkit.mOverlaps(tmp_path / "a", tmp_path / "b")


def test_figures_come_back(montage, tmp_path, monkeypatch):
    fake(tmp_path, monkeypatch, montage, """echo '[struct stat="OK", count=17]'""")
    assert montage.toolkit.implementation() == "programs"
    assert montage.toolkit.mOverlaps(tmp_path / "a", tmp_path / "b") == {"stat": "OK", "count": 17.0}


def test_some_programs_are_not_enough(montage, tmp_path, monkeypatch):
    fake(tmp_path, monkeypatch, montage, "exit 0")
    (tmp_path / "mAdd").unlink()
    monkeypatch.setitem(sys.modules, "MontagePy", None)
    with pytest.raises(montage.toolkit.MontageError, match=r"not on PATH: mAdd; .*install Debian's montage"):
        montage.toolkit.implementation()


def test_errors_travel_between_processes(montage, monkeypatch):
    monkeypatch.setitem(sys.modules, "toolkit", montage.toolkit)
    error = pickle.loads(pickle.dumps(montage.toolkit.MontageError("mAdd", "no")))
    assert (error.program, error.message, str(error)) == ("mAdd", "no", "mAdd: no")


def test_both_forms_report_errors_alike(montage, form, tmp_path):
    with pytest.raises(montage.toolkit.MontageError, match=r"^mProjectPP: File .*nothing.fits not found"):
        montage.toolkit.mProjectPP(tmp_path / "nothing.fits", tmp_path / "out.fits", tmp_path / "a.hdr")


def test_both_forms_notice_a_file_that_is_no_image(montage, form, tmp_path):
    (tmp_path / "bad.fits").write_text("hello")
    with pytest.raises(montage.toolkit.MontageError, match=r"mImgtbl: badfits = 1"):
        montage.toolkit.mImgtbl([tmp_path / "bad.fits"], tmp_path / "t.tbl")


def test_a_bad_file_is_not_held_against_the_next_call(montage, form, tmp_path):
    bad, good = tmp_path / "bad" / "bad.fits", tmp_path / "good"
    bad.parent.mkdir()
    bad.write_text("hello")
    montage.make_data.make_tiles(good, 1, 1, 64)
    with pytest.raises(montage.toolkit.MontageError):
        montage.toolkit.mImgtbl([bad], tmp_path / "t.tbl")
    assert montage.toolkit.mImgtbl([good / "tile_0_0.fits"], tmp_path / "t.tbl")["count"] == 1
