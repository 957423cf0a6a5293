"""What a browser shows, and what it complained about."""

from selenium.webdriver.support.ui import WebDriverWait


def errors(driver):
    return [entry for entry in driver.get_log("browser") if entry["level"] in {"SEVERE", "WARNING"}]


def draw(driver, part):
    """Scroll to part of a page until every chart in it is drawn."""
    for chart in part.find_elements("css selector", ".chart"):
        driver.execute_script("arguments[0].scrollIntoView()", chart)
        WebDriverWait(driver, 20).until(
            lambda _, chart=chart: chart.find_elements("css selector", "svg.main-svg")
        )


def look_at(driver, folder, *, figures, rows):
    """Open a folder's page: so many figures, all drawn, so many rows in its first table. What stands in its body."""
    page = folder / "index.html"
    driver.get(page.as_uri())
    drawn = driver.find_elements("css selector", ".figure")
    assert len(drawn) == figures
    for figure in drawn:
        draw(driver, figure)
    table = driver.find_element("css selector", "table")
    assert len(table.find_elements("css selector", "tbody tr")) == rows
    assert errors(driver) == []
    return page.read_text().split("<body>")[1]
