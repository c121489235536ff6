import assert from "node:assert/strict";
import { test } from "node:test";
import { toYAML } from "../web/parts/yaml.js";

test("values that would be read as something else are quoted", () => {
	assert.equal(toYAML({ a: "true", b: "1", c: "plain text", d: "", e: "null", f: "x: y", g: true, h: 1.5, i: null, j: "- x", k: "2026-01-01" }), 'a: "true"\nb: "1"\nc: plain text\nd: ""\ne: "null"\nf: "x: y"\ng: true\nh: 1.5\ni: null\nj: "- x"\nk: "2026-01-01"\n');
});

test("collections", () => {
	assert.equal(toYAML({ list: [1, { a: 1, b: [2] }, []], map: { "odd key:": { deep: [] } }, none: {} }), 'list:\n  - 1\n  - a: 1\n    b:\n      - 2\n  - []\nmap:\n  "odd key:":\n    deep: []\nnone: {}\n');
});

test("text of several lines", () => {
	assert.equal(toYAML({ motd: "one\n\ntwo\n", tail: "a\nb" }), "motd: |\n  one\n\n  two\ntail: |-\n  a\n  b\n");
	assert.equal(toYAML({ a: " x\ny" }), 'a: " x\\ny"\n');
	assert.equal(toYAML({ a: "x\n\n" }), 'a: "x\\n\\n"\n');
});
