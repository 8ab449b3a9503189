#!/usr/bin/env python3
"""Draws look.png, the picture in the first README: the first screen of the page that the quickstart wrote, with its
number moved until the answer is wrong.

    examples/whence/look/picture.py runs/quickstart/look.html

The picture holds the hash of the files that draw the first screen; tests/examples/look/page.py says when they have changed since."""
import base64
import hashlib
import pathlib
import struct
import sys
import tempfile
import zlib

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "tests/examples/look"))


def drawn_by():
    """Returns the hash of the first screen's files."""
    files = [HERE / "viewer" / name for name in ("knob.js", "story.js", "curves.js", "frame.js", "look.css")]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def noted(picture):
    """Returns the hash in a PNG, or None."""
    begin = picture.find(b"tEXtdrawn by\0")
    return picture[begin + 13:begin + 29].decode() if begin >= 0 else None


def main(page):
    from page_driver import Browser
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser("chromium", profile)
        browser.call("Emulation.setDeviceMetricsOverride", width=1160, height=780, deviceScaleFactor=1, mobile=False)
        browser.open(pathlib.Path(page).resolve(), theme="light")
        wrong = browser.get("JSON.parse(document.getElementById('look-data').textContent).knob.stops.map(({ prediction }) => "
                            "prediction.likeliest[0][0] !== prediction.wanted[0])")
        browser.press("[data-focus=knob]", "Home", *["ArrowUp"] * max((k for k, each in enumerate(wrong) if each), default=0))
        browser.get("document.activeElement.blur()")
        png = base64.b64decode(browser.call("Page.captureScreenshot", format="png")["data"])
        browser.close()
    note = b"tEXtdrawn by\0" + drawn_by().encode()
    chunk = struct.pack(">I", len(note) - 4) + note + struct.pack(">I", zlib.crc32(note))
    (HERE / "look.png").write_bytes(png[:33] + chunk + png[33:])


if __name__ == "__main__":
    main(*sys.argv[1:])
