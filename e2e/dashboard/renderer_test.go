package dashboard_test

import "testing"

// TestTheRendererKeepsThePageUsable draws small views in the browser with the dashboard's renderer.
func TestTheRendererKeepsThePageUsable(t *testing.T) {
	s := newSite(t)
	p := s.Open(t, s.API())
	p.Eval(`(async () => {
		window.reported = [];
		window.reportError = (err) => window.reported.push(String(err)); // the tab fails the test otherwise
		window.dom = await import("/ui/core/dom.js");
		window.frame = () => new Promise((r) => { dom.redraw(); setTimeout(r, 200); });
		window.view = () => null;
		window.box = document.createElement("div");
		document.body.append(box);
		dom.mount(box, () => dom.h("div", null, window.view()), (err) => dom.h("p", { role: "alert" }, err.message));
		return 0;
	})()`)
	for _, c := range []struct{ name, script, want string }{
		{"rows with the same key do not pile up", `
			window.view = () => dom.h("ul", null, ["a", "a", "b"].map((k) => dom.h("li", { key: k }, k)));
			for (let n = 0; n < 4; n++) await frame();
			return box.textContent;`, `"aab"`},
		{"a row that moves keeps the focus", `
			let order = ["a", "b", "c"];
			window.view = () => dom.h("ul", null, order.map((k) => dom.h("li", { key: k, id: "row-" + k, tabindex: "0" }, k)));
			await frame();
			document.getElementById("row-c").focus();
			order = ["c", "b", "a"];
			await frame();
			return [box.textContent, document.activeElement.id];`, `["cba","row-c"]`},
		{"a component that fails does not stop the others, and comes back", `
			let fails = false, counted = 0;
			class Part { view() { if (fails) throw new Error("broken"); return dom.h("i", null, "fine"); } }
			window.view = () => dom.h("div", null, dom.h(Part), dom.h("b", null, String(++counted)));
			await frame();
			fails = true;
			await frame();
			const broken = box.querySelector("[role=alert]").textContent, before = box.querySelector("b").textContent;
			await frame();
			const after = box.querySelector("b").textContent;
			fails = false;
			await frame();
			return [broken, Number(after) > Number(before), box.querySelector("i").textContent, window.reported];`, `["broken",true,"fine",["Error: broken"]]`},
		{"a component that cannot be made or removed does not stop the others", `
			class Bad { constructor() { throw new Error("no"); } view() { return ""; } }
			class Sticky { removed() { throw new Error("stuck"); } view() { return dom.h("i", null, "s"); } }
			let part = Bad;
			window.view = () => dom.h("div", null, dom.h(part), dom.h("b", null, "rest"));
			await frame();
			const first = box.textContent;
			part = Sticky;
			await frame();
			part = "hr";
			await frame();
			return [first, box.textContent];`, `["norest","rest"]`},
	} {
		if got := p.Eval("(async () => {" + c.script + "})()"); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}
