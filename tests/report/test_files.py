"""Reports are written whole, and only over reports."""

import os

import pytest

from limitformer.report import files, html

PAGE = html.page("Title", "Lead.", [], generator="test")


def test_a_report_is_written_and_replaced(tmp_path):
    path = tmp_path / "new" / "folder" / "report.html"
    files.write_report(path, PAGE, "test")
    assert path.read_text("utf-8") == PAGE
    newer = PAGE.replace("Lead.", "Newer.")
    files.write_report(path, newer, "test")
    assert path.read_text("utf-8") == newer
    assert os.listdir(path.parent) == ["report.html"]


@pytest.mark.parametrize("content", ["my notes", "", html.page("x", "y", [], generator="other")])
def test_other_files_are_left_alone(tmp_path, content):
    path = tmp_path / "report.html"
    path.write_text(content)
    for call in (
        lambda: files.check_target(path, "test"),
        lambda: files.write_report(path, PAGE, "test"),
    ):
        with pytest.raises(FileExistsError, match="was not written by test, so it is left alone"):
            call()
    assert path.read_text() == content
    assert os.listdir(tmp_path) == ["report.html"]


def test_a_folder_or_a_broken_link_in_the_way(tmp_path):
    (tmp_path / "report.html").mkdir()
    with pytest.raises(FileExistsError, match="left alone"):
        files.check_target(tmp_path / "report.html", "test")
    (tmp_path / "link.html").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError, match="left alone"):
        files.check_target(tmp_path / "link.html", "test")


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(FileExistsError, match="is a file, but the report needs a folder"):
        files.check_target(tmp_path / "out" / "report.html", "test")


def test_a_folder_that_cannot_be_written_to(tmp_path, monkeypatch):
    monkeypatch.setattr(files.os, "access", lambda *_: False)  # root may write everywhere
    with pytest.raises(PermissionError, match=r"cannot be written to\. Choose another folder"):
        files.check_target(tmp_path / "report.html", "test")


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interrupted_write_leaves_the_old_report_and_nothing_else(tmp_path, monkeypatch, error):
    path = tmp_path / "report.html"
    files.write_report(path, PAGE, "test")

    def interrupt(*_):
        raise error

    monkeypatch.setattr(files.os, "fsync", interrupt)
    with pytest.raises(error):
        files.write_report(path, PAGE.replace("Lead.", "Newer."), "test")
    assert path.read_text("utf-8") == PAGE
    assert os.listdir(tmp_path) == ["report.html"]


def test_a_page_without_its_generator_is_refused(tmp_path):
    with pytest.raises(ValueError, match="does not name 'demo' as its generator"):
        files.write_report(tmp_path / "report.html", PAGE, "demo")
    assert not os.listdir(tmp_path)
