"""What a browser complained about."""


def errors(driver):
    return [entry for entry in driver.get_log("browser") if entry["level"] in {"SEVERE", "WARNING"}]
