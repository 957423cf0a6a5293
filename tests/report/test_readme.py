"""The README's first screen says what results/ says, and its picture shows it."""

from dataclasses import replace
from pathlib import Path

from PIL import Image

from rankscope.catalogue import PAPERS
from rankscope.lab.finding import Question
from rankscope.report.answers import answers, contradictions, hero, statements
from rankscope.report.readme import BEGIN, END, MADE_FROM, PICTURE, digest, first_screen, sections
from tests.report.made import sections as made_sections

ROOT = Path(__file__).parents[2]
REMEDY = "run python docs/first_screen.py"


def test_the_first_screen_and_its_picture_are_those_of_the_results():
    found = sections(ROOT / "results")
    written = (ROOT / "README.md").read_text("utf-8").split(BEGIN)[1].split(END)[0]
    assert written == first_screen(found), REMEDY
    assert Image.open(ROOT / PICTURE).info[MADE_FROM] == digest(hero(answers(found))), REMEDY
    assert [answer.question for answer in answers(found)] == list(Question), "every question is answered"


def test_findings_name_claims_figures_and_pages_that_exist():
    found = sections(ROOT / "results")
    known = {claim.id: claim for paper in PAPERS.values() for claim in paper.claims}
    every = [one for answer in answers(found) for one in answer.evidence] + contradictions(found)
    figures = {claim.figure for claim in known.values()}
    for finding in (one.finding for one in every):
        assert set(finding.claims) <= set(known), finding.name
        assert finding.figure in figures, finding.name
        assert (ROOT / finding.link).exists(), finding.name


def test_without_tables_nothing_is_answered(tmp_path):
    assert answers(sections(tmp_path)) == []
    assert hero([]) is None


def test_the_smallest_scale_decides_nothing():
    small, large = made_sections()
    tried = replace(small, scale="smoke")
    assert {one.judgement.claim.name for one in statements([small, large])} == {"clear", "against"}
    assert {one.judgement.claim.name for one in statements([tried, large])} == {"clear"}
    assert [one.carriers for one in contradictions([tried, large])] == [[]]
