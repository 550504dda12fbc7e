/* compare.html without this file says the same. With it: point at a chart to read values, drag over it to zoom
 * (a double click shows all again), switch sinks on and off. It reads the pictures themselves: their data
 * attributes tell what a place on an axis means. Texts are only ever set as text. */
(function () {
    'use strict';
    var NS = 'http://www.w3.org/2000/svg';
    var charts = Array.prototype.slice.call(document.querySelectorAll('svg.chart'));
    var panels = [], sinks = [], off = {}, tip = null, drag = null;
    if (!charts.length) return;

    function all(root, selector) { return Array.prototype.slice.call(root.querySelectorAll(selector)); }
    function numbers(text) { return text.split(' ').map(Number); }
    function make(name, className, parent) {
        var made = document.createElement(name);
        made.className = className;
        parent.appendChild(made);
        return made;
    }
    function draw(name, className, parent) {
        var made = document.createElementNS(NS, name);
        made.setAttribute('class', className);
        parent.appendChild(made);
        return made;
    }
    function sinkOf(element) { return Number(/\bs(\d+)/.exec(element.getAttribute('class'))[1]); }

    /* ---- reading the pictures ---- */

    function readPath(path, plot) {
        var points = [], pattern = /([ML])(-?[\d.]+) (-?[\d.]+)/g, match;
        while ((match = pattern.exec(path.getAttribute('d'))))
            points.push({ move: match[1] === 'M', u: (match[2] - plot[0]) / plot[2], y: match[3] });
        return { path: path, points: points };
    }
    function readPanel(chart, g) {
        var plot = numbers(g.dataset.plot);
        var panel = { chart: chart, g: g, plot: plot, x: numbers(g.dataset.x), y: numbers(g.dataset.y),
            xlog: g.dataset.log.indexOf('x') >= 0, ylog: g.dataset.log.indexOf('y') >= 0,
            share: g.dataset.log.indexOf('s') >= 0, unit: g.dataset.unit, from: 0, to: 1, lines: [], marks: [], rects: [] };
        all(g, 'g.s').forEach(function (line) {
            var read = readPath(line.querySelector('path.l'), plot);
            read.sink = sinkOf(line);
            panel.lines.push(read);
            all(line, 'path.m').forEach(function (mark) {
                var at = /translate\((\S+) (\S+)\)/.exec(mark.getAttribute('transform'));
                panel.marks.push({ mark: mark, u: (at[1] - plot[0]) / plot[2], y: at[2] });
            });
        });
        all(g, 'g.v rect').forEach(function (rect) {
            var x = Number(rect.getAttribute('x')), width = Number(rect.getAttribute('width'));
            panel.rects.push({ rect: rect, u: (x - plot[0]) / plot[2], w: width / plot[2] });
        });
        return panel;
    }
    charts.forEach(function (chart) {
        all(chart, 'g.p').forEach(function (g) { panels.push(readPanel(chart, g)); });
        all(chart, 'svg.chart > g').forEach(function (key) {
            if (key.getAttribute('class') === 'p') return;
            var sink = sinkOf(key);
            key.addEventListener('click', function () { show(sink, off[sink]); });
            if (!sinks[sink])
                sinks[sink] = { name: key.querySelector('text').textContent, style: /c\d/.exec(key.querySelector('path').getAttribute('class'))[0] };
        });
    });

    /* ---- places and values ---- */

    function value(axis, log, share) {
        return log ? axis[0] * Math.pow(axis[1] / axis[0], share) : axis[0] + (axis[1] - axis[0]) * share;
    }
    function shareOf(axis, log, v) {
        return log ? Math.log(v / axis[0]) / Math.log(axis[1] / axis[0]) : (v - axis[0]) / (axis[1] - axis[0]);
    }
    function place(panel, u) { return panel.plot[0] + panel.plot[2] * (u - panel.from) / (panel.to - panel.from); }
    function short(v) { return Math.abs(v) >= 1000 ? v.toFixed(0) : String(Number(v.toPrecision(3))); }
    function nameX(panel, v) {
        if (!panel.share) return short(v);
        return String(Number((100 * (1 - 1 / v)).toFixed(Math.max(1, Math.round(Math.log10(v)) - 1)))) + ' %';
    }

    /* ---- zoom ---- */

    function ticks(panel) {
        var low = value(panel.x, panel.xlog, panel.from), high = value(panel.x, panel.xlog, panel.to), found = [], v;
        if (panel.xlog) {
            for (var power = Math.pow(10, Math.floor(Math.log10(low))); power <= high; power *= 10)
                (high / low > 40 ? [1] : [1, 2, 5]).forEach(function (m) { found.push(power * m); });
        } else {
            var wanted = (high - low) / 6, step = Math.pow(10, Math.floor(Math.log10(wanted)));
            step *= wanted / step <= 1.000001 ? 1 : wanted / step <= 2 ? 2 : wanted / step <= 5 ? 5 : 10;
            for (v = Math.ceil(low / step) * step; v <= high; v += step) found.push(Number(v.toPrecision(10)));
        }
        return found.filter(function (t) { return t >= low * (1 - 1e-9) && t <= high * (1 + 1e-9); });
    }
    function redraw(panel) {
        var g = panel.g.querySelector('g.x'), bottom = panel.plot[1] + panel.plot[3];
        panel.lines.forEach(function (line) {
            line.path.setAttribute('d', line.points.map(function (p) {
                return (p.move ? 'M' : 'L') + place(panel, p.u).toFixed(1) + ' ' + p.y;
            }).join(''));
        });
        panel.marks.forEach(function (m) {
            m.mark.setAttribute('transform', 'translate(' + place(panel, m.u).toFixed(1) + ' ' + m.y + ')');
        });
        panel.rects.forEach(function (r) {
            r.rect.setAttribute('x', place(panel, r.u).toFixed(1));
            r.rect.setAttribute('width', (r.w * panel.plot[2] / (panel.to - panel.from)).toFixed(1));
        });
        while (g.firstChild) g.removeChild(g.firstChild);
        ticks(panel).forEach(function (t) {
            var x = place(panel, shareOf(panel.x, panel.xlog, t)).toFixed(1);
            draw('path', 'g', g).setAttribute('d', 'M' + x + ' ' + panel.plot[1] + 'V' + bottom);
            var text = draw('text', 'n', g);
            text.setAttribute('x', x > 524 ? 558 : x);
            text.setAttribute('y', bottom + 17);
            text.setAttribute('text-anchor', x > 524 ? 'end' : 'middle');
            text.textContent = nameX(panel, t);
        });
        panel.chart.classList.toggle('zoomed', panel.from > 0 || panel.to < 1);
    }
    /* All charts over time are zoomed together, and so are those over shares. */
    function zoom(share, from, to) {
        panels.forEach(function (panel) {
            if (panel.share !== share) return;
            panel.from = from;
            panel.to = to;
            redraw(panel);
        });
        reset.hidden = !panels.some(function (panel) { return panel.from > 0 || panel.to < 1; });
    }

    /* ---- sinks on and off ---- */

    var bar = make('div', 'bar', document.body);
    function show(sink, on) {
        off[sink] = !on;
        all(document, '.s' + sink).forEach(function (element) { element.classList.toggle('off', !on); });
        sinks[sink].box.checked = on;
    }
    sinks.forEach(function (sink, index) {
        var label = make('label', '', bar);
        sink.box = make('input', '', label);
        sink.box.type = 'checkbox';
        sink.box.checked = true;
        sink.box.addEventListener('change', function () { show(index, sink.box.checked); });
        var sample = draw('svg', '', label);
        sample.setAttribute('viewBox', '0 0 40 10');
        draw('path', 'l ' + sink.style, sample).setAttribute('d', 'M0 5H40');
        make('span', '', label).textContent = sink.name;
    });
    var reset = make('button', 'reset', bar);
    reset.type = 'button';
    reset.textContent = 'show all';
    reset.hidden = true;
    reset.addEventListener('click', function () { zoom(true, 0, 1); zoom(false, 0, 1); });

    /* ---- pointing ---- */

    function find(chart, event) {
        var box = chart.getBoundingClientRect(), scale = 560 / box.width;
        var x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale, found = null;
        panels.forEach(function (panel) {
            var plot = panel.plot;
            if (panel.chart === chart && y >= plot[1] - 20 && y <= plot[1] + plot[3] + 20 && x >= plot[0] - 5 && x <= plot[0] + plot[2] + 10)
                found = { panel: panel, share: Math.min(1, Math.max(0, (x - plot[0]) / plot[2])) };
        });
        if (found) found.u = found.panel.from + found.share * (found.panel.to - found.panel.from);
        return found;
    }
    function nearest(line, u) {
        var best = null, distance = 0.03;
        line.points.forEach(function (p) {
            if (Math.abs(p.u - u) < distance) { distance = Math.abs(p.u - u); best = p; }
        });
        return best;
    }
    function row(left, right) {
        var line = make('div', '', tip);
        make('span', '', line).textContent = left;
        make('span', '', line).textContent = right;
    }
    function hide() {
        if (tip) tip.hidden = true;
        all(document, '.cross').forEach(function (line) { line.parentNode.removeChild(line); });
    }
    function point(at, event) {
        var panel = at.panel;
        hide();
        if (!tip) tip = make('div', 'tip', document.body);
        tip.textContent = '';
        row(panel.share ? 'share' : 'at', nameX(panel, value(panel.x, panel.xlog, at.u)) + (panel.share ? '' : ' s'));
        panel.lines.forEach(function (line) {
            var p = off[line.sink] ? null : nearest(line, at.u);
            if (p) row(sinks[line.sink].name, short(value(panel.y, panel.ylog, 1 - (p.y - panel.plot[1]) / panel.plot[3])) + ' ' + panel.unit);
        });
        draw('path', 'cross', panel.g).setAttribute('d', 'M' + place(panel, at.u).toFixed(1) + ' ' + panel.plot[1] + 'v' + panel.plot[3]);
        tip.hidden = false;
        var width = document.documentElement.clientWidth, left = event.clientX + 14;
        if (left + tip.offsetWidth > width) left = Math.max(0, event.clientX - 14 - tip.offsetWidth);
        tip.style.left = left + window.scrollX + 'px';
        tip.style.top = event.clientY + window.scrollY + 14 + 'px';
    }
    function pick(at) {
        var a = Math.min(drag.at.u, at.u), b = Math.max(drag.at.u, at.u), panel = drag.at.panel;
        drag.rect.setAttribute('x', place(panel, a).toFixed(1));
        drag.rect.setAttribute('width', (place(panel, b) - place(panel, a)).toFixed(1));
        return [a, b];
    }
    charts.forEach(function (chart) {
        chart.addEventListener('pointerdown', function (event) {
            var at = find(chart, event);
            if (!at || event.button > 0) return;
            drag = { at: at, rect: draw('rect', 'pick', at.panel.g) };
            drag.rect.setAttribute('y', at.panel.plot[1]);
            drag.rect.setAttribute('height', at.panel.plot[3]);
        });
        chart.addEventListener('pointermove', function (event) {
            var at = find(chart, event);
            if (!at) { hide(); return; }
            point(at, event);
            if (drag && at.panel === drag.at.panel) drag.last = pick(at);
        });
        chart.addEventListener('pointerleave', hide);
        chart.addEventListener('dblclick', function (event) {
            var at = find(chart, event);
            if (at) zoom(at.panel.share, 0, 1);
        });
    });
    function drop(apply) {
        if (!drag) return;
        var span = drag.last, panel = drag.at.panel;
        drag.rect.parentNode.removeChild(drag.rect);
        drag = null;
        if (apply && span && (span[1] - span[0]) / (panel.to - panel.from) > 0.02) zoom(panel.share, span[0], span[1]);
    }
    document.addEventListener('pointerup', function () { drop(true); });
    document.addEventListener('pointercancel', function () { drop(false); });
}());
