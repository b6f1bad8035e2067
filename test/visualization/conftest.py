import shutil

import pytest

from torch_geometric_gsl.visualization import explore

ARGUMENTS = (
    '--headless=new',
    '--no-sandbox',
    '--use-angle=swiftshader',  # WebGL in software.
    '--enable-unsafe-swiftshader',
    '--disable-dev-shm-usage',
)


@pytest.fixture(scope='session')
def browser():
    webdriver = pytest.importorskip('selenium.webdriver')
    program, driver = shutil.which('chromium'), shutil.which('chromedriver')
    if program is None or driver is None:
        pytest.skip("needs Debian's packages chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ARGUMENTS:
        options.add_argument(argument)
    options.set_capability('goog:loggingPrefs', {'browser': 'ALL'})
    service = webdriver.ChromeService(driver)
    with webdriver.Chrome(options=options, service=service) as browser:
        yield browser


@pytest.fixture
def visit(browser, tmp_path):
    """Opens the page of a graph, which may log nothing until the test ends."""
    ui = pytest.importorskip('selenium.webdriver.support.ui')

    def open_page(graph, **kwargs):
        path = explore(graph, path=tmp_path / 'graph.html', **kwargs)
        browser.set_window_size(1400, 900)
        # From one file to the next, Chromium waits five seconds for the first worker.
        browser.get('about:blank')
        browser.get_log('browser')
        browser.get(path.as_uri())
        ready = "return document.body.dataset.ready === 'true'"
        ui.WebDriverWait(browser, 60).until(lambda b: b.execute_script(ready))
        return browser

    yield open_page
    # Neither an error of the page nor anything that it wanted from elsewhere.
    assert browser.get_log('browser') == []
    assert browser.execute_script('return window.hit === undefined')
