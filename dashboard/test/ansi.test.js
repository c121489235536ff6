import assert from "node:assert/strict";
import { test } from "node:test";
import { plain, spans } from "../web/parts/ansi.js";

test("colours become spans", () => {
	assert.deepEqual(spans("\u001b[31mred\u001b[0m plain"), [{ text: "red", class: "fg-red" }, { text: " plain", class: "" }]);
	assert.deepEqual(spans("\u001b[1;92mbold\u001b[22m light"), [{ text: "bold", class: "fg-bright-green bold" }, { text: " light", class: "fg-bright-green" }]);
	assert.deepEqual(spans("\u001b[38;5;196mx\u001b[38;2;0;0;255my"), [{ text: "x", class: "fg-bright-red" }, { text: "y", class: "fg-bright-blue" }]);
});

test("other sequences are removed and do nothing", () => {
	for (const hostile of ["\u001b]0;title\u0007", "\u001b]52;c;aGk=\u001b\\", "\u001b[2J", "\u001b[10;10H", "\u001bPdata\u001b\\", "\u001b[?1049h", "\u001bc", "\u001b]8;;https://example.org\u0007", "\u001b", "\u001b[", "\u001b]unfinished"]) {
		assert.equal(plain("a" + hostile).startsWith("a"), true);
		assert.equal(plain("a" + hostile).includes("\u001b"), false, JSON.stringify(hostile));
	}
	assert.equal(plain("a\u001b]0;title\u0007b"), "ab");
});

test("controls, bidi marks and zero-width characters are shown", () => {
	assert.equal(plain("a\u202eb\u200bc\u0007d"), "a\ufffdb\ufffdc\ufffdd");
	assert.equal(plain("tab\tand return\r"), "tab\tand return");
});

test("a rewritten line shows what a terminal shows at its end", () => {
	for (const cr of ["\r", "\n"]) { // the event stream has line feeds
		assert.equal(plain(["10%", "20%", "100%"].join(cr)), "100%");
		assert.equal(plain(["abcdef", "xy"].join(cr)), "xycdef");
		assert.equal(plain(["done", ""].join(cr)), "done");
		assert.equal(plain(["first", "second", "", ""].join(cr)), "second");
		assert.equal(plain(["a long text", "\u001b[Kshort"].join(cr)), "short");
		assert.equal(plain(["a long text", "short\u001b[K"].join(cr)), "short");
		assert.equal(plain(["a long text", "\u001b[2Kshort"].join(cr)).trimEnd(), "short");
		assert.equal(plain(["", "text"].join(cr)), "text");
		assert.equal(plain(["a\u202eb", "\u0007"].join(cr)), "\ufffd\ufffdb");
		assert.deepEqual(spans(["\u001b[31mred and more", "\u001b[32mgreen"].join(cr)), [{ text: "green", class: "fg-green" }, { text: "and more".slice(-7), class: "fg-red" }]);
	}
	assert.deepEqual(spans("10%\r\u001b[32m20%\u001b[0m ok\r"), [{ text: "20%", class: "fg-green" }, { text: " ok", class: "" }]);
});
