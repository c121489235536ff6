import assert from "node:assert/strict";
import { test } from "node:test";
import { languageOf, tokens } from "../web/parts/highlight.js";

/** kinds colours a text and returns what is not plain. */
function kinds(language, text) {
	let state = "main";
	return text.split("\n").map((line) => {
		const found = tokens(language, line, state);
		state = found.state;
		assert.equal(found.list.map((l) => l[1]).join(""), line);
		return found.list.filter((l) => l[0]).map((l) => l[0] + ":" + l[1]).join(" ");
	});
}

test("the language of a file is that of its name", () => {
	assert.equal(languageOf("config/paper-global.yml"), "yaml");
	assert.equal(languageOf("server.properties"), "properties");
	assert.equal(languageOf("a.json/README"), "plain");
});

test("each language", () => {
	assert.deepEqual(kinds("yaml", 'a: 1 # one\n- "b": true'), ["key:a mark:: number:1 comment:# one", 'mark:- key:"b" mark:: word:true']);
	assert.deepEqual(kinds("json", '{"a": [1.5, "x", null]}'), ['mark:{ key:"a" mark:: mark:[ number:1.5 mark:, string:"x" mark:, word:null mark:] mark:}']);
	assert.deepEqual(kinds("toml", '[a]\nb = """\nc = 1\n"""\nd = 1'), ["section:[a]", 'key:b mark:= string:"""', "string:c = 1", 'string:"""', "key:d mark:= number:1"]);
	assert.deepEqual(kinds("properties", "#a\nport=%PORT%\nb=true"), ["comment:#a", "key:port mark:= var:%PORT%", "key:b mark:= word:true"]);
	assert.deepEqual(kinds("sh", 'if x "$A\nb"'), ['word:if string:" var:$A', 'string:b string:"']);
	assert.deepEqual(kinds("xml", "<!-- a\nb --><c d='e'>"), ["comment:<!-- comment: a", "comment:b --> key:<c section:d mark:= string:'e' key:>"]);
});

test("no text is lost, however odd", () => {
	const parts = ['"', "'", "<!--", "-->", "#", "%A%", "${", "}", ":", "=", "[", "]", "\\", "\u202e", "0x", "1e", "\t", "é", "<", "&", "$", " "];
	for (const language of ["plain", "json", "yaml", "toml", "properties", "sh", "xml"]) {
		for (let n = 0; n < 500; n++) kinds(language, Array.from({ length: n % 17 }, (_, i) => parts[(n * 31 + i * i * 7 + i) % parts.length]).join("") + "\n" + parts[n % parts.length]);
	}
});

test("a line that is too long is left alone", () => {
	const line = "{" + '"a":1,'.repeat(5000);
	assert.deepEqual(tokens("json", line, "main").list, [["", line]]);
});
