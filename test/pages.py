"""Reads the pages that `explore` writes."""

import html
import json
import re


def content(path):
    """Of the program: nodes, colours, graphs and images."""
    text = path.read_text(encoding='utf-8')
    match = re.search(r'id="data">(.*?)</script>', text, flags=re.DOTALL)
    return json.loads(match[1])


def colours(path):
    """Of the nodes, by name."""
    return {colour['name']: colour for colour in content(path)['colours']}


def notes(path):
    """The sentences above the drawing."""
    text = path.read_text(encoding='utf-8')
    return [html.unescape(note) for note in re.findall('class="note">(.*?)</p>', text)]
