import shutil

import pytest


@pytest.fixture(scope='session')
def browser():
    """Chromium without a window, drawing WebGL in software."""
    webdriver = pytest.importorskip('selenium.webdriver')
    program, driver = shutil.which('chromium'), shutil.which('chromedriver')
    if program is None or driver is None:
        pytest.skip("needs Debian's packages chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in (
        '--headless=new',
        '--no-sandbox',
        '--use-angle=swiftshader',
        '--enable-unsafe-swiftshader',
        '--disable-dev-shm-usage',
    ):
        options.add_argument(argument)
    options.set_capability('goog:loggingPrefs', {'browser': 'ALL'})
    service = webdriver.ChromeService(driver)
    with webdriver.Chrome(options=options, service=service) as found:
        yield found
