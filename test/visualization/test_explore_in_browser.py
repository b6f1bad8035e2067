"""A click-through of the page that `explore` writes, in Chromium without a window."""

import shutil

import pytest
import torch
from torch_geometric.data import Data

from torch_geometric_gsl.visualization import explore

webdriver = pytest.importorskip('selenium.webdriver')
ui = pytest.importorskip('selenium.webdriver.support.ui')
wheel = pytest.importorskip('selenium.webdriver.common.actions.wheel_input')
pytestmark = pytest.mark.slow
ActionChains, Keys = webdriver.ActionChains, webdriver.Keys
NAMES = ['zero', 'one', '<img src=x onerror="window.hit=1">', 'three', 'four', 'five']
NOTHING_POINTED_AT = 'Point at a node'


@pytest.fixture(scope='session')
def browser():
    """Chromium without a window, drawing WebGL in software."""
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


@pytest.fixture
def page(browser, tmp_path):
    """Open a page of two graphs on six nodes, which stand on a grid."""
    first = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 0, 0, 5]])
    second = torch.tensor([[5, 4], [0, 0]])
    graphs = {
        'layer 1': (first, torch.tensor([0.9, 0.5, 0.3, 0.1, 0.7])),
        '</script><b>layer 2': (second, torch.tensor([0.2, 0.8])),
    }
    data = Data(
        x=torch.arange(12.0).view(6, 2),
        y=torch.tensor([0, 0, 1, 1, 2, -1]),
        pos=torch.tensor([[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1.0]]),
    )
    images = torch.zeros(6, 2, 3, 3, dtype=torch.uint8)
    images[1, ..., 0] = 255
    path = explore(
        graphs,
        data=data,
        prediction=torch.tensor([0, 1, 1, 1, 2, 2]),
        images=images,
        names=NAMES,
        class_names=['red', '<i>green', 'blue'],
        title='A <b>title</b> & more',
        path=tmp_path / 'graph.html',
    )
    browser.set_window_size(1400, 900)
    visit(browser, path)
    yield browser
    # Neither an error of the page nor anything that it wanted from elsewhere.
    assert browser.get_log('browser') == []
    assert browser.execute_script('return window.hit === undefined')


def visit(browser, path):
    """Open a page, and wait until it is ready."""
    # From one file to the next, Chromium waits five seconds for the first one's worker.
    browser.get('about:blank')
    browser.get_log('browser')
    browser.get(path.as_uri())
    wait(browser, "return document.body.dataset.ready === 'true'")


def wait(browser, script):
    ui.WebDriverWait(browser, 60).until(lambda b: b.execute_script(script))


def find(page, selector):
    return page.find_element('css selector', selector)


def point_at(page, node):
    """Move the mouse over a node of the first drawing, and return the action."""
    action = ActionChains(page)
    action.w3c_actions.pointer_action.move_to_location(*place_of(page, node))
    return action


def place_of(page, node):
    """Return where a node stands in the window."""
    # A camera that has moved is drawn in the next frame, and places follow the drawing.
    return page.execute_script(
        """
        const { sigma } = explorer.views[0];
        sigma.refresh();
        const data = sigma.getNodeDisplayData(arguments[0]);
        const place = sigma.framedGraphToViewport(data);
        const box = sigma.getContainer().getBoundingClientRect();
        return [Math.round(box.left + place.x), Math.round(box.top + place.y)];
        """,
        str(node),
    )


def hover(page, node):
    point_at(page, node).perform()
    wait(page, f'return explorer.focus === {node}')
    return find(page, '#node').text


def shown_edges(page, view=0):
    return set(
        page.execute_script(
            f"""
            const view = explorer.views[{view}];
            return view.graph.filterEdges(
                (edge) => !view.sigma.getEdgeDisplayData(edge).hidden);
            """
        )
    )


def test_names_are_text(page):
    assert page.title == find(page, 'h1').text == 'A <b>title</b> & more'
    options = [
        o.text for o in find(page, '#first .graph').find_elements('tag name', 'option')
    ]
    assert options == ['layer 1', '</script><b>layer 2']
    assert '<i>green' in find(page, '#legend').text
    text = hover(page, 2)
    assert NAMES[2] in text
    assert not page.find_elements('css selector', '#node img, #legend i > i, b b')
    assert page.execute_script('return explorer.views[0].overlay.drawn[0].text') == (
        NAMES[2][:27] + '…'
    )


def test_a_node_that_is_pointed_at(page):
    assert NOTHING_POINTED_AT in find(page, '#node').text
    lines = hover(page, 0).splitlines()
    assert lines[0] == 'zero'
    assert 'edges from (2)' in lines
    # The source of the larger weight comes first; a line may hold name and weight.
    listed = ' '.join(lines[lines.index('edges from (2)') + 1 :])
    assert listed.index(NAMES[2]) < listed.index('three')
    assert '0.3' in listed.partition('three')[0]
    assert 'edges to (1)' in lines
    assert len(shown_edges(page)) == 3
    pixel = page.execute_script(
        "return [...document.querySelector('#node canvas').getContext('2d')"
        '.getImageData(0, 0, 1, 1).data]'
    )
    assert pixel == [0, 0, 0, 255]
    hover(page, 1)
    pixel = page.execute_script(
        "return [...document.querySelector('#node canvas').getContext('2d')"
        '.getImageData(2, 1, 1, 1).data]'
    )
    assert pixel == [255, 0, 0, 255]


def test_a_click_keeps_a_node_and_another_lets_it_go(page):
    point_at(page, 4).click().perform()
    wait(page, 'return explorer.chosen === 4')
    assert find(page, '#node h2').text == 'four'
    facts = find(page, '#node dl').text.splitlines()
    assert facts[:4] == ['label', 'blue', 'prediction', 'blue']
    find(page, '#fit').click()
    wait(page, 'return explorer.focus === null')
    assert NOTHING_POINTED_AT in find(page, '#node').text


def test_a_node_is_found_by_its_name(page):
    search = find(page, '#search')
    search.send_keys('f')
    found = [b.text for b in find(page, '#matches').find_elements('tag name', 'button')]
    assert found == ['four', 'five']
    search.send_keys('ive', Keys.ENTER)
    wait(page, 'return explorer.chosen === 5')
    assert find(page, '#node h2').text == 'five'
    assert not find(page, '#matches').is_displayed()
    search.send_keys('!')
    assert find(page, '#matches').text == 'no such node'
    # The neighbour in the list is a way to that neighbour.
    find(page, '#node li button').click()
    wait(page, 'return explorer.chosen === 4')
    camera = page.execute_script('return explorer.views[0].sigma.getCamera().ratio')
    assert camera <= 1


def set_slider(page, value):
    page.execute_script(
        """
        const slider = document.getElementById('threshold');
        slider.value = arguments[0];
        slider.dispatchEvent(new Event('input'));
        """,
        value,
    )


def test_the_threshold_hides_weak_edges(page):
    assert find(page, '#first .count').text == '6 nodes, 5 of 5 edges'
    assert find(page, '#least').get_attribute('value') == '0.1'
    # In the middle of the slider is the median of all weights.
    set_slider(page, 500)
    assert find(page, '#least').get_attribute('value') == '0.5'
    assert find(page, '#first .count').text == '6 nodes, 3 of 5 edges'
    assert len(shown_edges(page)) == 3
    assert 'edges from (0)' in hover(page, 0)
    ActionChains(page).move_to_element(find(page, 'h1')).perform()
    wait(page, 'return explorer.focus === null')
    set_slider(page, 1000)
    assert len(shown_edges(page)) == 1
    set_slider(page, 0)
    assert len(shown_edges(page)) == 5
    # A weight can be typed.
    every = Keys.CONTROL + 'a'
    find(page, '#least').send_keys(every)
    find(page, '#least').send_keys('0.6')
    assert len(shown_edges(page)) == 2
    assert find(page, '#threshold').get_attribute('value') == '667'
    find(page, '#least').send_keys(every)
    find(page, '#least').send_keys(Keys.BACKSPACE)
    assert len(shown_edges(page)) == 5


def test_a_class_of_the_legend_is_singled_out(page):
    def coloured():
        return page.execute_script(
            """
            const { sigma } = explorer.views[0];
            return [0, 1, 2, 3, 4, 5].filter(
                (node) => sigma.getNodeDisplayData(String(node)).color !== FAINT);
            """
        )

    def entry(number):
        return page.find_elements('css selector', '#legend button')[number]

    texts = [b.text for b in page.find_elements('css selector', '#legend button')]
    assert texts == ['red', '<i>green', 'blue', 'none']
    entry(1).click()
    assert coloured() == [2, 3]
    assert entry(1).get_attribute('aria-pressed') == 'true'
    # Edges with an end in that class.
    assert shown_edges(page) == edges_of(page, {2, 3})
    entry(3).click()
    assert coloured() == [5]
    assert entry(1).get_attribute('aria-pressed') == 'false'
    entry(3).click()
    assert coloured() == [0, 1, 2, 3, 4, 5]
    assert len(shown_edges(page)) == 5


def edges_of(page, nodes):
    source, target = page.execute_script(
        'const { source, target } = explorer.data.graphs[0]; return [source, target];'
    )
    pairs = enumerate(zip(source, target, strict=True))
    return {str(e) for e, ends in pairs if nodes & set(ends)}


def test_the_wheel_and_the_keys_zoom(page):
    def camera():
        return page.execute_script(
            'return explorer.views[0].sigma.getCamera().getState()'
        )

    stage = find(page, '#first .stage')
    origin = wheel.ScrollOrigin.from_element(stage)
    ActionChains(page).scroll_from_origin(origin, 0, -300).perform()
    wait(page, 'return explorer.views[0].sigma.getCamera().ratio < 0.9')
    find(page, '#fit').click()
    wait(page, 'return explorer.views[0].sigma.getCamera().ratio === 1')
    page.execute_script('arguments[0].focus()', stage)
    ActionChains(page).send_keys('+', Keys.ARROW_RIGHT).perform()
    assert camera()['ratio'] == 0.8
    assert camera()['x'] == pytest.approx(0.58)
    ActionChains(page).send_keys('-', Keys.ARROW_LEFT).perform()
    assert camera()['ratio'] == 1


def tap(page, x, y):
    """Touch the screen with a finger."""
    touch = {'type': 'touchStart', 'touchPoints': [{'x': x, 'y': y}]}
    page.execute_cdp_cmd('Input.dispatchTouchEvent', touch)
    touch = {'type': 'touchEnd', 'touchPoints': []}
    page.execute_cdp_cmd('Input.dispatchTouchEvent', touch)


def test_a_tap_beside_a_node_chooses_it(page):
    x, y = place_of(page, 3)
    tap(page, x + 18, y)
    wait(page, 'return explorer.chosen === 3')
    assert find(page, '#node h2').text == 'three'
    page.execute_script('return new Promise((done) => setTimeout(done, 400))')
    tap(page, x + 100, y - 60)
    wait(page, 'return explorer.focus === null')


def test_the_keyboard_alone_goes_from_node_to_node(page):
    page.execute_script('document.getElementById("search").focus()')
    ActionChains(page).send_keys('zero', Keys.ENTER).perform()
    wait(page, 'return explorer.chosen === 0')
    page.execute_script('document.querySelector("#node li button").focus()')
    ActionChains(page).send_keys(Keys.ENTER).perform()
    wait(page, 'return explorer.chosen === 2')
    heading = page.execute_script('return document.activeElement.textContent')
    assert heading == NAMES[2]
    ActionChains(page).send_keys(Keys.ESCAPE).perform()
    wait(page, 'return explorer.focus === null')


def test_an_image_is_drawn_over_the_node_in_focus(page):
    hover(page, 1)
    ratio, pixel = page.execute_script(
        """
        const { sigma, overlay } = explorer.views[0];
        const { x, y, half } = overlay.place(1);
        const ratio = window.devicePixelRatio;
        const { data } = overlay.context.getImageData(x * ratio, y * ratio, 1, 1);
        return [getComputedStyle(sigma.getCanvases().hoverNodes).display, [...data]];
        """
    )
    assert (ratio, pixel) == ('none', [255, 0, 0, 255])


def test_colours(page):
    def colour(node):
        return page.execute_script(
            f"return explorer.views[0].sigma.getNodeDisplayData('{node}').color"
        )

    choice = ui.Select(find(page, '#colour'))
    names = [option.text for option in choice.options]
    assert names == ['label', 'prediction', 'feature 0', 'feature 1']
    assert colour(0) == colour(1) != colour(2)
    assert colour(5) == '#bbbbbb'  # Without a label.
    choice.select_by_visible_text('prediction')
    assert colour(0) != colour(1) == colour(2)
    choice.select_by_visible_text('feature 0')
    assert colour(0) == 'rgb(68,1,84)'
    assert colour(5) == 'rgb(253,231,37)'
    assert find(page, '#legend').text.split() == ['0', '10']
    choice.select_by_visible_text('label')
    assert 'none' in find(page, '#legend').text.split()


def test_two_graphs_side_by_side(page):
    assert not find(page, '#second').is_displayed()
    find(page, '#compare').click()
    assert find(page, '#second').is_displayed()
    assert find(page, '#second .count').text == '6 nodes, 2 of 2 edges'
    places = page.execute_script(
        """
        return explorer.views.map(
            (view) => view.graph.mapNodes((_, { x, y }) => [x, y]));
        """
    )
    assert places[0] == places[1]
    text = hover(page, 0)
    assert 'layer 1: edges from (2)' in text
    assert '</script><b>layer 2: edges from (2)' in text
    assert len(shown_edges(page, 1)) == 2
    page.execute_script(
        'explorer.views[0].sigma.getCamera().setState({ x: 0.3, ratio: 0.4 })'
    )
    camera = page.execute_script(
        'return explorer.views[1].sigma.getCamera().getState()'
    )
    assert (camera['x'], camera['ratio']) == (0.3, 0.4)
    find(page, '#compare').click()
    assert not find(page, '#second').is_displayed()
    page.execute_script(
        'explorer.views[0].sigma.getCamera().setState({ x: 0.5, ratio: 1 })'
    )
    assert 'layer 1' not in hover(page, 1)


def test_narrow_windows_hold_everything(page):
    page.set_window_size(500, 900)
    page.execute_cdp_cmd(
        'Emulation.setDeviceMetricsOverride',
        {'width': 420, 'height': 800, 'deviceScaleFactor': 1, 'mobile': True},
    )
    try:
        widths = page.execute_script(
            'return [document.documentElement.scrollWidth, window.innerWidth]'
        )
        assert widths == [420, 420]
        stage = find(page, '#first .stage').size
        assert stage['width'] >= 400
        assert stage['height'] >= 200
        assert find(page, 'aside').is_displayed()
    finally:
        page.execute_cdp_cmd('Emulation.clearDeviceMetricsOverride', {})


def test_nodes_without_places_are_arranged(browser, tmp_path):
    """Two cliques that nothing joins come apart, from one place."""
    node = torch.arange(5)
    one = torch.cartesian_prod(node, node).t()
    one = one[:, one[0] != one[1]]
    edge_index = torch.cat([one, one + 5], dim=1)
    graph = edge_index, torch.ones(edge_index.size(1))
    path = explore(graph, path=tmp_path / 'cliques.html')
    visit(browser, path)
    assert find(browser, '#arrange').text == 'Stop'
    assert not find(browser, '#compare').is_displayed()
    wait(
        browser,
        """
        const place = [...Array(10).keys()].map((node) =>
            explorer.views[0].graph.getNodeAttributes(String(node)));
        const apart = (a, b) => Math.hypot(a.x - b.x, a.y - b.y);
        let inside = 0, between = Infinity;
        for (let i = 0; i < 10; i += 1) {
            for (let j = 0; j < i; j += 1) {
                const d = apart(place[i], place[j]);
                if ((i < 5) === (j < 5)) inside = Math.max(inside, d);
                else between = Math.min(between, d);
            }
        }
        return between > inside;
        """,
    )
    assert browser.get_log('browser') == []


def open_page(browser, tmp_path, graph, **kwargs):
    visit(browser, explore(graph, path=tmp_path / 'odd.html', **kwargs))


def edges(number, num_nodes):
    return torch.randint(num_nodes, (2, number))


ODD = {
    'one node': ((edges(0, 1), torch.empty(0)), {'data': Data(x=torch.ones(1, 2))}),
    'a loop': ((torch.tensor([[0], [0]]), torch.ones(1)), {}),
    'no edges': ((edges(0, 1), torch.empty(0)), {'names': ['a', 'b', 'c']}),
    'no weight': ((edges(9, 5), torch.zeros(9)), {}),
    'equal weights': ((edges(9, 5), torch.full((9,), 0.2)), {}),
    'weights over decades': ((edges(9, 5), 10.0 ** torch.arange(-12, -3)), {}),
    'long names': ((edges(9, 3), torch.rand(9)), {'names': ['n' * 5000] * 3}),
    'nothing is finite': (
        (edges(9, 3), torch.rand(9)),
        {'data': Data(x=torch.full((3, 2), torch.nan), y=torch.full((3,), torch.nan))},
    ),
    'many classes': (
        (edges(90, 60), torch.rand(90)),
        {'data': Data(y=torch.arange(60), x=torch.randn(60, 3))},
    ),
    'one place': ((edges(9, 3), torch.rand(9)), {'data': Data(pos=torch.zeros(3, 2))}),
}


@pytest.mark.parametrize('name', ODD)
def test_odd_graphs(browser, tmp_path, name):
    graph, kwargs = ODD[name]
    browser.set_window_size(1400, 900)
    open_page(browser, tmp_path, graph, **kwargs)
    num_edges = graph[1].numel()
    assert len(shown_edges(browser)) == num_edges
    assert find(browser, '#threshold').is_enabled() == (len(graph[1].unique()) > 1)
    if find(browser, '#threshold').is_enabled():
        set_slider(browser, 1000)
        assert len(shown_edges(browser)) == 1
    browser.execute_script('explorer.choose(0); explorer.views[0].goTo(0)')
    assert find(browser, '#node h2').is_displayed()
    widths = browser.execute_script(
        'return [document.documentElement.scrollWidth, window.innerWidth]'
    )
    assert widths[0] <= widths[1]
    assert browser.get_log('browser') == []


def test_a_graph_of_too_many_edges_says_so(browser, tmp_path):
    graph = edges(200_000, 5000), torch.rand(200_000)
    pos = torch.randn(5000, 2)
    open_page(browser, tmp_path, graph, data=Data(pos=pos))
    text = '5,000 nodes, 50,000 of 50,000 edges, the strongest of 200,000'
    assert find(browser, '#first .count').text == text
    find(browser, '#search').send_keys('4321')
    browser.execute_script('document.querySelector("#matches button").click()')
    assert find(browser, '#node h2').text == '4321'
    assert browser.get_log('browser') == []


def test_without_webgl_the_page_says_what_it_needs(browser, tmp_path):
    script = {'source': 'HTMLCanvasElement.prototype.getContext = () => null;'}
    added = browser.execute_cdp_cmd('Page.addScriptToEvaluateOnNewDocument', script)
    try:
        graph = torch.tensor([[0], [1]]), torch.ones(1)
        browser.get(explore(graph, path=tmp_path / 'graph.html').as_uri())
        wait(browser, 'return !document.getElementById("failure").hidden')
        assert 'It needs WebGL' in find(browser, '#failure').text
    finally:
        browser.execute_cdp_cmd('Page.removeScriptToEvaluateOnNewDocument', added)
