"""What a browser shows, and what it complained about."""


def errors(driver):
    return [entry for entry in driver.get_log("browser") if entry["level"] in {"SEVERE", "WARNING"}]


def look_at(driver, folder, *, figures, rows):
    """Open a folder's page: so many figures, all drawn, so many rows in its first table. What stands in its body."""
    page = folder / "index.html"
    driver.get(page.as_uri())
    drawn = driver.find_elements("css selector", ".figure")
    assert len(drawn) == figures
    assert all(figure.find_elements("css selector", "svg.main-svg") for figure in drawn)
    table = driver.find_element("css selector", "table")
    assert len(table.find_elements("css selector", "tbody tr")) == rows
    assert errors(driver) == []
    return page.read_text().split("<body>")[1]
