"""The page as HTML: the controls from their description, the rest from `page.html`."""

from __future__ import annotations

import functools
from importlib import resources
from string import Template

from ..report.html import Markup, escape
from .settings import CONTROLS, Choice, Control, Range, Settings

GROUPS = {"attention": "Attention", "block": "Blocks", "input": "Input", "output": "Output"}
_ON_A_SLIDER = "heads"  # a choice among numbers


def page(s: Settings) -> str:
    """The page with its controls at these settings."""
    return _template("page.html").substitute(controls=controls(s))


def message(text: str) -> str:
    """A page that says what went wrong, and the way back."""
    return _template("message.html").substitute(text=escape(text))


def controls(s: Settings) -> Markup:
    """All inputs, in groups."""
    parts = []
    for group, title in GROUPS.items():
        inside = "".join(
            _control(name, control, getattr(s, name))
            for name, control in CONTROLS.items()
            if control.group == group
        )
        parts.append(f"<fieldset><legend>{escape(title)}</legend>{inside}</fieldset>")
    return Markup("\n".join(parts))


def _control(name: str, control: Control, value) -> str:
    help_id = f"{name}-help"
    hint = f'<small id="{help_id}">{escape(control.help)}</small>'
    kind = control.kind
    if isinstance(kind, Choice) and name != _ON_A_SLIDER:
        return _choice(name, control, kind, value, hint)
    if isinstance(kind, Range):
        shown, extra = f"{value:g}", f'min="{kind.low:g}" max="{kind.high:g}" step="{kind.step:g}"'
        at = shown
    else:
        words = list(kind.names)
        shown, at = kind.names[value], str(words.index(value))
        extra = f'min="0" max="{len(words) - 1}" step="1" data-values="{",".join(words)}"'
    return (
        f'<div class="control"><label for="{name}">{escape(control.label)}</label>'
        f'<output id="{name}-value" for="{name}">{escape(shown)}</output>'
        f'<input type="range" id="{name}" name="{name}" {extra} value="{at}" '
        f'aria-valuetext="{escape(shown)}" aria-describedby="{help_id}">{hint}</div>'
    )


def _choice(name: str, control: Control, kind: Choice, value, hint: str) -> str:
    label = escape(control.label)
    if len(kind.names) > 4:
        options = "".join(
            f'<option value="{word}"{" selected" * (word == value)}>{escape(shown)}</option>'
            for word, shown in kind.names.items()
        )
        return (
            f'<div class="control"><label for="{name}">{label}</label>'
            f'<select id="{name}" name="{name}" aria-describedby="{name}-help">{options}</select>'
            f"{hint}</div>"
        )
    radios = "".join(
        f'<label><input type="radio" name="{name}" value="{word}"{" checked" * (word == value)}>'
        f"<span>{escape(shown)}</span></label>"
        for word, shown in kind.names.items()
    )
    return (
        f'<div class="control" role="radiogroup" aria-labelledby="{name}-label" '
        f'aria-describedby="{name}-help"><span id="{name}-label" class="label">{label}</span>'
        f'<div class="choices">{radios}</div>{hint}</div>'
    )


@functools.cache
def _template(name: str) -> Template:
    return Template(resources.files("limitformer.explore").joinpath(name).read_text("utf-8"))
