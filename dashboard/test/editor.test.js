import assert from "node:assert/strict";
import { test } from "node:test";
import { Editor } from "../web/parts/editor.js";

const text = (s) => new Editor({ text: s, path: "a.json" });

test("a large text is split into parts, and is the same as a whole", () => {
	const lines = Array.from({ length: 60000 }, (_, i) => '"key' + i + '": ' + i).join("\n");
	for (const s of ["", "a", lines, lines + "\n", "x".repeat(1e6), "a\n" + "x".repeat(1e6) + "\nb\n", ("x".repeat(250000) + "\n").repeat(4), "\n".repeat(400000)]) {
		const e = text(s);
		assert.equal(e.text(), s);
		assert.ok(e.parts.every((p) => p.length <= 300000));
		assert.ok(s.length <= 300000 || e.parts.length > 1);
	}
});

test("line ends stay as they are", () => {
	assert.equal(text("a\r\nb\r\n").text(), "a\r\nb\r\n");
	assert.equal(text("a\nb").mixed, false);
	assert.equal(text("a\r\nb\n").mixed, true);
});

test("characters that hide are counted", () => {
	assert.deepEqual(text("a\nb\u202ec\u200b").hidden, { count: 2, line: 2 });
	assert.equal(text("a\tb\r\né").hidden.count, 0);
});
