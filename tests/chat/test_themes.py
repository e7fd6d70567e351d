# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from chat.scripted import Chat, MakeChat, Script
from textual.color import Color
from textual.theme import Theme

from splashpy.chat.settings import ChatSettings
from splashpy.chat.theme import DARK, LIGHT
from splashpy.chat.themes import COLOURS, read_theme
from splashpy.errors import UsageError

READABLE = 4.5  # WCAG 2.2, success criterion 1.4.3
GROUNDS = ("background", "surface", "panel")
WRITING = (
    "foreground",
    "text-primary",
    "text-accent",
    "text-success",
    "text-warning",
    "text-error",
)


def luminance(color: Color) -> float:
    """Relative luminance, as WCAG 2.2 defines it."""
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in color.normalized
    ]
    red, green, blue = linear
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: Color, other: Color) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=lambda theme: theme.name)
def test_every_text_can_be_read_on_every_ground(theme: Theme, ground: str) -> None:
    colours = theme.to_color_system().generate()
    behind = Color.parse(colours[ground])
    faint = behind.blend(Color.parse(colours["foreground"]), 0.7)
    texts = {name: Color.parse(colours[name]) for name in WRITING} | {"faint": faint}

    ratios = {name: contrast(behind, behind + text) for name, text in texts.items()}

    assert {name: r for name, r in ratios.items() if r < READABLE} == {}


@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=lambda theme: theme.name)
def test_the_count_of_new_rows_can_be_read(theme: Theme) -> None:
    ground, text = Color.parse(theme.primary), Color.parse(theme.background or "")
    assert contrast(ground, text) >= READABLE


def written(folder: Path, text: str, name: str = "mine") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_theme_says_what_differs_from_our_own_of_its_brightness(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, 'dark = false\nbackground = "#FDF6E3"\n', "paper")

    theme = read_theme(path)

    assert (theme.name, theme.dark, theme.background) == ("paper", False, "#FDF6E3")
    assert all(
        getattr(theme, name) == getattr(LIGHT, name)
        for name in COLOURS
        if name != "background"
    )


@pytest.mark.parametrize(
    ("text", "key", "advice"),
    [
        ('primary = "blue"', "primary is 'blue'", f'primary = "{DARK.primary}"'),
        ("accent = 7", "accent is 7", f'accent = "{DARK.accent}"'),
        ('primry = "#112233"', "no primry", f'primary = "{DARK.primary}"'),
        ('dark = "no"', "dark is 'no'", "dark = false"),
        ("primary #112233", "not TOML", "edit"),
    ],
)
def test_a_bad_file_is_told_with_its_key_and_what_to_write(
    tmp_path: Path, text: str, key: str, advice: str
) -> None:
    path = written(tmp_path, text)

    with pytest.raises(UsageError) as caught:
        read_theme(path)

    assert str(path) in caught.value.message
    assert key in caught.value.message
    assert advice in caught.value.fix[0]


@pytest.mark.parametrize("content", [b"\xff\xfe", None])
def test_a_file_that_is_no_text_is_told(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "mine.toml"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(UsageError, match=r"mine\.toml"):
        read_theme(path)


def test_a_name_that_cannot_be_one_is_told_with_another(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot name a theme") as caught:
        read_theme(written(tmp_path, "", "my theme"))
    assert "mine.toml" in caught.value.fix[0]


def test_own_themes_are_used_and_a_bad_one_spoils_only_itself(
    chat: MakeChat, script: Script, tmp_path: Path
) -> None:
    written(tmp_path, 'background = "#101010"\n', "coal")
    written(tmp_path, 'background = "coal"\n', "bad")

    async def scenario(it: Chat) -> None:
        await it.ready()
        assert it.app.theme == "coal"
        written(tmp_path, 'background = "#202020"\n', "later")
        await it.send("/theme later")
        await it.until(lambda: it.app.theme == "later")
        await it.send("/theme bad")
        await it.until(lambda: it.prompt.text == "/theme bad")
        assert it.app.theme == "later"
        assert "bad.toml: background" in it.app.screen.problem.message

    settings = ChatSettings(remote=True, theme="coal", themes=tmp_path)
    chat(script.started(), settings=settings).run(scenario)
