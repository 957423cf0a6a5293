"""Reading and moving in the page, in Chromium, on a wide and on a narrow screen."""

from dataclasses import replace

import pandas as pd
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from rankscope.lab.agreement import with_agreement
from rankscope.lab.section import Unfinished
from rankscope.report import write_report
from rankscope.report.answers import answers
from tests.browser import draw, errors
from tests.report.made import CLAIMS, LATER, findings, other_seeds, sections

pytestmark = pytest.mark.browser
WIDE, NARROW = (1280, 900), (390, 800)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return write_report(tmp_path_factory.mktemp("page"), sections()).as_uri()


@pytest.fixture(params=[WIDE, NARROW], ids=["wide", "narrow"])
def opened(browser, page, request):
    yield from at(browser, page, *request.param)


@pytest.fixture
def wide(browser, page):
    yield from at(browser, page, *WIDE)


@pytest.fixture
def narrow(browser, page):
    yield from at(browser, page, *NARROW)


def at(browser, page, width, height):
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get("about:blank")
    browser.get(page)
    yield browser
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture(params=[WIDE, NARROW], ids=["wide", "narrow"])
def beside(browser, compared, request):
    yield from at(browser, compared, *request.param)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    (small, large), (other, _) = sections(), other_seeds()
    made = with_agreement([small], [other])
    return write_report(tmp_path_factory.mktemp("compared"), [*made, large]).as_uri()


def css(browser, selector):
    return browser.find_elements(By.CSS_SELECTOR, selector)


def shown(browser):
    rows = [row for row in css(browser, "tr.claim") if row.is_displayed()]
    return [row.get_attribute("id").removeprefix("claim-toy2024.") for row in rows]


def choose(browser, name, value):
    Select(browser.find_element(By.NAME, name)).select_by_value(value)


def test_nothing_is_cut_and_nothing_complains(opened):
    assert opened.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    for figure in css(opened, ".figure"):
        draw(opened, figure)
    assert opened.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert errors(opened) == []


def test_the_first_screen_has_three_answers_and_how_sure_they_are(opened):
    cards = [card.text for card in css(opened, ".answer")]
    assert [card.splitlines()[1] for card in cards] == ["Rank 2.", "No.", "A little."]
    assert (
        "How sure: measured at the paper's sizes with 3 seeds. See the figure.\nholds Statement of clear."
        in cards[0]
    ), "the larger run is shown"
    assert (
        "at small sizes (scale quick) with 3 seeds. See the figure.\nundecided Statement of vague."
        in cards[1]
    )
    assert (
        "trainings are missing for a verdict at these sizes: of the checks that can be made without them, 1 hold, 0 fail "
        "and 0 are undecided. See the figure. no verdict Statement of later. Figure 9"
        in " ".join(cards[2].split())
    )
    draw(opened, css(opened, ".answers")[0])
    against = opened.find_element(By.ID, "against")
    text = opened.execute_script("return arguments[0].nextElementSibling.textContent", against)
    assert "Memory. It is 1.1." in " ".join(text.split())
    assert "1 hold, 1 fail and 0 are undecided" in opened.find_element(By.ID, "main").text, "each claim once"


def test_a_finding_whose_claims_have_no_check_that_can_be_made_says_that_trainings_are_missing():
    (small, _) = sections()
    without = replace(small, unfinished=[Unfinished(LATER, ())])
    (third,) = (
        one for answer in answers([without]) for one in answer.evidence if one.finding.name == "third"
    )
    assert third.sure.endswith("with 3 seeds; trainings are missing for a verdict.")


def test_a_verdict_from_other_sizes_than_the_finding_says_so(tmp_path):
    (small, large) = sections()
    page = write_report(tmp_path, [small, replace(large, findings=findings())], printed=False).read_text(
        "utf-8"
    )
    assert 'Statement of vague.</a> <span class="soft">Remark 3, at small sizes (scale quick)</span>' in page
    assert 'Statement of clear.</a> <span class="soft">Figure 1</span>' in page, "judged at its own sizes"
    both = replace(
        large, findings=findings(), unfinished=[Unfinished(CLAIMS[2], CLAIMS[2].checks(pd.DataFrame()))]
    )
    (second,) = (
        one for answer in answers([small, both]) for one in answer.evidence if one.finding.name == "second"
    )
    assert second.unfinished
    assert not second.unjudged, "it has a verdict at small sizes"


def test_cards_stand_side_by_side_where_there_is_room(opened):
    tops = {card.location["y"] for card in css(opened, ".answer")}
    panels = {panel.location["x"] for panel in css(opened, "#figure-toy2024-1 .panel")}
    narrow = opened.execute_script("return innerWidth") < 760
    assert (len(tops), len(panels)) == ((3, 1) if narrow else (1, 2))


def test_claims_are_filtered_by_verdict_origin_paper_scale_and_words(opened):
    assert len(shown(opened)) == 6
    choose(opened, "verdict", "fails")
    assert shown(opened) == ["against"]
    choose(opened, "verdict", "")
    choose(opened, "origin", "BEYOND")
    assert shown(opened) == ["more", "later"]
    choose(opened, "origin", "")
    choose(opened, "scale", "paper")
    assert shown(opened) == ["clear-paper"]
    choose(opened, "scale", "")
    opened.find_element(By.NAME, "search").send_keys("statement VAGUE")
    assert shown(opened) == ["vague"]
    assert css(opened, ".toolbar output")[0].text == "1 of 6 claims"
    css(opened, ".toolbar button")[0].click()
    WebDriverWait(opened, 5).until(lambda _: len(shown(opened)) == 6)


def test_a_choice_of_claims_shows_them_together_and_a_figure_when_it_is_asked_for(wide):
    assert all(figure.is_displayed() for figure in css(wide, ".figure"))
    choose(wide, "verdict", "fails")
    assert not any(figure.is_displayed() for figure in css(wide, ".figure"))
    css(wide, "#claim-toy2024\\.against .to-chart")[0].click()
    seen = [figure.get_attribute("id") for figure in css(wide, ".figure") if figure.is_displayed()]
    assert seen == ["figure-toy2024-2"]
    assert shown(wide) == ["against"], "the choice stays"
    choose(wide, "verdict", "")
    assert all(figure.is_displayed() for figure in css(wide, ".figure"))


def test_a_choice_is_part_of_the_address(wide, page):
    choose(wide, "verdict", "fails")
    assert wide.current_url.endswith("?verdict=fails")
    wide.get("about:blank")
    wide.get(page + "?verdict=undecided&sort=verdict")
    assert shown(wide) == ["vague"]


def test_claims_are_sorted_within_their_group(wide):
    choose(wide, "sort", "verdict")
    assert shown(wide) == ["against", "clear", "vague", "more", "later", "clear-paper"]
    choose(wide, "sort", "page")
    assert shown(wide)[:2] == ["clear", "against"]


def test_a_deep_link_shows_what_a_filter_hides(wide, page):
    wide.get("about:blank")
    wide.get(page + "?verdict=fails#claim-toy2024.vague")
    row = wide.find_element(By.ID, "claim-toy2024.vague")
    assert row.is_displayed()
    assert 0 <= wide.execute_script("return arguments[0].getBoundingClientRect().top", row) < WIDE[1]


def test_who_hovers_a_cell_reads_its_whole_text(wide):
    draw(wide, wide.find_element(By.ID, "figure-toy2024-1"))
    told = "return document.querySelectorAll('#figure-toy2024-1 .chart')[1].data[0].hovertext"
    assert wide.execute_script(told) == [["share 0.1 of 3", "share 0.9 of 3"]]


def test_charts_are_drawn_when_they_come_near(narrow):
    last = css(narrow, ".chart")[-1]
    assert not last.find_elements(By.CSS_SELECTOR, "svg.main-svg")
    draw(narrow, css(narrow, ".figure")[-1])
    assert last.find_elements(By.CSS_SELECTOR, "svg.main-svg")


def test_the_index_names_figures_by_title_and_leads_there(opened):
    index = css(opened, ".index > details")[0]
    wide = opened.execute_script("return innerWidth") > 1250
    assert (index.get_attribute("open") is not None) == wide
    if not wide:
        css(opened, ".index summary")[0].click()
    opened.find_element(By.LINK_TEXT, "The second figure").click()
    assert opened.current_url.endswith("#figure-toy2024-2")
    figure = opened.find_element(By.ID, "figure-toy2024-2")
    top = opened.execute_script("return arguments[0].getBoundingClientRect().top", figure)
    assert 0 <= top < 150, "under the toolbar, in sight"
    assert (css(opened, ".index > details")[0].get_attribute("open") is not None) == wide


def test_the_index_stays_in_sight(wide):
    wide.execute_script("scrollTo(0, 1500)")
    box = wide.execute_script("return document.querySelector('.index').getBoundingClientRect().top")
    assert box == 0


def test_claims_are_cards_on_a_narrow_screen_and_a_table_on_a_wide_one(opened):
    row = css(opened, "tr.claim")[0]
    xs = {cell.location["x"] for cell in row.find_elements(By.TAG_NAME, "td")}
    assert len(xs) == (1 if opened.execute_script("return innerWidth") < 760 else 4)


def test_origins_are_counted_apart_and_the_least_margin_is_shown(wide):
    heads = [head.text for head in css(wide, "#toy2024 .group")]
    assert heads[0].startswith("The paper's statements (2) 1 holds 1 fails 0 undecided")
    assert heads[2].startswith("Beyond the paper (2) 1 holds 0 fails 0 undecided 1 not run in full")
    measured = css(wide, "#claim-toy2024\\.clear td")[2].text
    assert measured.startswith("share 1\n1 [0.752, 1.25], threshold ≥ 0.5")
    assert (
        "reproduce --only toy2024.vague --scale quick --seeds" in css(wide, "#claim-toy2024\\.vague")[0].text
    )


def test_provenance_is_folded_until_it_is_wanted(wide):
    part = css(wide, "#figure-toy2024-1 details")[0]
    assert "torch 2" not in part.text
    part.find_element(By.TAG_NAME, "summary").click()
    assert "torch 2" in part.text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_and_page_have_the_colours_of_the_reader(wide, page, scheme):
    wide.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    figure = css(wide, ".figure")[0]
    draw(wide, figure)
    ink, tick, back = wide.execute_script(
        "const of = (e, p) => getComputedStyle(e)[p];"
        "return [of(document.body, 'color'), of(arguments[0], 'fill'), of(document.body, 'backgroundColor')]",
        figure.find_element(By.CSS_SELECTOR, ".xtick text"),
    )
    wide.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert tick == ink
    assert (back == "rgb(255, 255, 255)") == (scheme == "light")


def test_every_chart_is_described_and_the_keyboard_reaches_everything(wide):
    described = [chart.get_attribute("aria-label") for chart in css(wide, ".figure .chart")]
    assert described[0] == "A: error against rank; ours, talk."
    assert all(described)
    body = css(wide, "body")[0]
    body.send_keys(Keys.TAB)
    assert wide.switch_to.active_element.text == "Skip to the content"
    reached = set()
    for _ in range(60):
        active = wide.switch_to.active_element
        reached.add(active.get_attribute("name") or active.tag_name)
        active.send_keys(Keys.TAB)
    assert {"summary", "a", "verdict", "search", "sort"} <= reached


def test_a_second_set_of_seeds_has_a_column_of_its_own(beside):
    row = css(beside, "#claim-toy2024\\.clear")[0]
    wide = beside.execute_script("return innerWidth") > 760
    assert len({cell.location["x"] for cell in row.find_elements(By.TAG_NAME, "td")}) == (5 if wide else 1)
    assert "reversed" in row.text
    assert "0 [-0.248, 0.248]" in row.text, "what the other seeds measured, of the same quantity"
    assert "not judged" in css(beside, "#claim-toy2024\\.more")[0].text
    assert css(beside, "#toy2024 th:nth-child(3)")[0].get_attribute("textContent") == "seeds 1000–1002"
    assert not css(beside, "#toy2024-paper th:nth-child(5)"), "the tables have no other seeds"
    said = css(beside, ".agreement")[0].text
    assert "Other seeds (1000 to 1002): 1 of 2 verdicts that both runs decide are the same (50.0%)." in said
    assert "Reversed by other seeds: clear. Undecided here, decided with other seeds: vague." in said
    choose(beside, "fate", "reversed")
    assert shown(beside) == ["clear"]
    choose(beside, "fate", "survives")
    assert shown(beside) == ["against"]
    assert beside.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert "undecided Statement of vague. Remark 3; other seeds: holds" in css(beside, ".answer")[1].text


def test_without_a_second_set_of_seeds_there_is_no_filter_for_them(wide):
    assert not css(wide, "[name=fate]")
    assert not css(wide, ".agreement")
