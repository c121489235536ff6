package startvalue

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
)

func values(start ...string) Values {
	v := Values{Text: map[string]string{"JAVA": "/usr/bin/java", "Q": `"`, "HELD": "%X%"}, Start: map[string]string{}}
	for n := 0; n < len(start); n += 2 {
		v.Start[start[n]] = start[n+1]
	}
	return v
}

func TestReferencesMatchTheirQuoting(t *testing.T) {
	const x = "${ORRERY_START_1}"
	for rule, c := range map[string]struct{ command, want string }{
		"without a placeholder":           {`java -jar "a b".jar`, `java -jar "a b".jar`},
		"without quotes":                  {`java -jar s.jar %X%`, `java -jar s.jar "` + x + `"`},
		"within a word":                   {`java -Dmap=%X%.yml -jar s.jar`, `java -Dmap="` + x + `".yml -jar s.jar`},
		"within double quotes":            {`./run "motd=%X%!"`, `./run "motd=` + x + `!"`},
		"within single quotes":            {`./run 'motd=%X% $HOME'`, `./run 'motd='"` + x + `"' $HOME'`},
		"twice":                           {`./run %X% "%X%"`, `./run "` + x + `" "` + x + `"`},
		"among percent signs":             {`./run %%X%% 100%`, `./run %"` + x + `"% 100%`},
		"a size of java":                  {`%JAVA% -Xmx%N%M -jar s.jar`, `/usr/bin/java -Xmx"` + x + `"M -jar s.jar`},
		"behind a text value":             {`%JAVA% -jar s.jar %X%`, `/usr/bin/java -jar s.jar "` + x + `"`},
		"a text value is not looked into": {`./run %HELD% %X%`, `./run %X% "` + x + `"`},
		"a program in a variable's path":  {`"$JAVA_HOME"/bin/java -jar s.jar %X%`, `"$JAVA_HOME"/bin/java -jar s.jar "` + x + `"`},
		"behind programs that wrap":       {`exec nice -n 5 env A=%X% timeout -k 5 10 java -jar s.jar %X%`, `exec nice -n 5 env A="` + x + `" timeout -k 5 10 java -jar s.jar "` + x + `"`},
		"an assignment of a command":      {`MAP=%X% ./run`, `MAP="` + x + `" ./run`},
		"the arguments of a script":       {`bash -e start.sh --map %X%`, `bash -e start.sh --map "` + x + `"`},
		"those behind options":            {`bash -euo pipefail --login start.sh %X%`, `bash -euo pipefail --login start.sh "` + x + `"`},
		"behind options of java":          {`java --add-opens a/b=c -XX:+UseZGC -cp x Main %X%`, `java --add-opens a/b=c -XX:+UseZGC -cp x Main "` + x + `"`},
		"those of another language":       {`python3 -W ignore server.py %X%`, `python3 -W ignore server.py "` + x + `"`},
		"in a list and a group":           {`cd /srv && { ./run %X% || exit 1; } &`, `cd /srv && { ./run "` + x + `" || exit 1; } &`},
		"output that is only copied":      {`./run %X% 2>&1 | tee log`, `./run "` + x + `" 2>&1 | tee log`},
		"a comment keeps the placeholder": {"./run a # %X%", "./run a # %X%"},
		"behind a format":                 {`printf "%s\n" %X%; ./run`, `printf "%s\n" "` + x + `"; ./run`},
		"what the console shows":          {`exec 2>&1 <in; echo %X%`, `exec 2>&1 <in; echo "` + x + `"`},
		"behind what an emulator runs":    {`box64 ./run %X%; mono --debug s.exe %X%; dotnet s.dll %X%`, `box64 ./run "` + x + `"; mono --debug s.exe "` + x + `"; dotnet s.dll "` + x + `"`},
		"a word of the console":           {`echo "map %X%"; ./run`, `echo "map ` + x + `"; ./run`},
	} {
		t.Run(rule, func(t *testing.T) {
			got, err := values("X", "$(id)", "N", "512").Command(fleet.Plan{Command: c.command})
			if err != nil || got.Text != c.want {
				t.Errorf("%s becomes %s, %v; want %s", c.command, got.Text, err, c.want)
			}
		})
	}
}

func TestValuesThatCouldBecomeCodeAreRefused(t *testing.T) {
	for _, command := range []string{
		`bash -c 'java -Dx=%X%'`, `bash -c "java %X%"`, `sh -ec "%X%"`, `bash -o pipefail -c %X%`, `exec /bin/bash -lc '%X%'`, `bash %X%`, `bash -s %X%`,
		`bash -c 'echo $0' %X%`, `bash --rcfile %X% start.sh`, `nice bash -c '%X%'`, `nice --adjustment 5 bash -c '%X%'`, `env -S "%X%"`, `env A=1 bash -c "%X%"`,
		`python3 -c "%X%"`, `perl -e '%X%' x.pl`, `node --eval %X%`, `ruby -W0 -e "%X%"`, `"$SHELL" -c "%X%"`, `$RUN %X%`, `/bin/ba?h -c %X%`, `ba\sh -c %X%`,
		`eval "java %X%"`, `eval java %X%`, `source %X%`, `. %X%`, `trap %X% EXIT`, `set -- %X%`, `read %X%`, `test -v %X%`, `[ %X% = a ]`, `let a=%X%`,
		`find . -exec %X% ;`, `echo %X% | bash`, `printf %X%`, `printf -v %X% a`, `printf "-v" %X% a`, `printf $A %X%`, `echo %X% >start.sh`, `{ echo %X%; } | sh`, `cat <<E` + "\n%X%\nE\n", `bash <<<%X%`, `java >%X%`, `java <%X%`,
		`$(echo %X%)`, "java `echo %X%`", `java <(echo %X%)`, `echo $((%X%))`, `((%X%))`, `[[ %X% == a ]]`, `[[ -v %X% ]]`, `echo ${a[%X%]}`, `echo ${a:-%X%}`, `echo "${a:-%X%}"`,
		`A=%X%; java $A`, `export A=%X%`, `declare A=%X%`, `A=(%X%)`, `A+=%X% java`, `for a in %X%; do java $a; done`, `case %X% in a) java;; esac`,
		`%X% -jar s.jar`, `./%X%`, `exec %X%`, `env %X% java`, `env %X%=a java`, `timeout %X% java`, `exec -a %X% java`, `exec -la %X% java`, `LD_PRELOAD=%X% java`, `PATH=%X% java`, `env JAVA_OPTS=%X% java`,
		`A=%X% bash -c 'echo $A'`, `A=%X% eval 'echo $A'`, `f() { eval "$1"; }; f %X%`, `./run bash -c %X%`, `sudo -u %X% java`, `ssh host java %X%`, `xargs java %X%`,
		`./run *%X%`, `./run {a,%X%}`, `./run \%X%`, `./run "\%X%"`, `./run "$%X%"`, `./run $'a%X%'`, `./run $"a%X%"`, `./run @(a|%X%)`,
		`java %X% -jar s.jar`, `java -XX:OnError=%X% -jar s.jar`, `java -XX:%X% -jar s.jar`, `java -D%X% -jar s.jar`, `java -cp %X% Main`, `java -jar %X%`, `java -javaagent:%X% -jar s.jar`,
		`bash -eo pipefail -c %X%`, `bash -oo pipefail posix -c %X%`, `fish -C 'a' -c %X%`, `fish --init-command 'a' %X%`, `ksh -R a -c %X%`, `bash - %X%`,
		`chrt -d -T 500 -P 1000 0 python3 -c %X%`, `./run python3 -c %X%`, `java --add-opens a/b=c %X% -jar s.jar`, `java --add-opens a/b=c -cp x %X%`,
		`exec >run.sh; echo %X%; sh run.sh`, `command exec >>run.sh; printf %s %X%`, `exec >&run.sh; echo %X%`, `exec > >(sh); echo %X%`, `$E >run.sh; echo %X%`,
		`mono %X%`, `dotnet %X%`, `wine %X%`, `wine64 %X%`, `box64 %X%`, `groovy -e %X%`, `proot %X%`, `valgrind %X%`, `npx %X%`, `yash -c %X%`,
		`coproc java %X%`, `./run "%X%`, `java -Xmx%X%M -jar s.jar`,
	} {
		got, err := values("X", "$(id)").Command(fleet.Plan{Command: command})
		if !errs.Is(err, errs.Invalid) || !strings.HasPrefix(errs.FieldOf(err), "variables") {
			t.Errorf("%s becomes %s: %v", command, got.Text, err)
		}
	}
	for _, command := range []string{`%Q%./run %X%`, `./run %Q%%X%`} { // quotes in the group's values count too
		if _, err := values("X", "a").Command(fleet.Plan{Command: command}); err == nil {
			t.Errorf("%s is taken", command)
		}
	}
}

func TestValuesDoNotBecomeOptions(t *testing.T) {
	for value, ok := range map[string]bool{"-XX:OnError=x": false, "--help": false, "-5": true, "-1.5": true, "a-b": true, "": true, "+x": true} {
		for command, begins := range map[string]bool{`./run %X%`: true, `./run ''"%X%"`: true, `./run $A%X%`: true, `./run --map=%X%`: false} {
			if _, err := values("X", value).Command(fleet.Plan{Command: command}); (err == nil) != (ok || !begins) {
				t.Errorf("%q in %s: %v", value, command, err)
			}
		}
	}
	if _, err := values("X", "-b", "E", "").Command(fleet.Plan{Command: `./run %E%%X%`}); err == nil {
		t.Error("an empty value before it hides an option")
	}
}

func TestEnvironmentWithStartValues(t *testing.T) {
	for _, c := range []struct {
		name, command string
		ok            bool
	}{
		{"MOTD", `./run`, true},
		{"MOTD", `./run "$MOTD" "--motd=${MOTD}"`, true},
		{"MOTD", `java -DMOTD=1 -jar s.jar`, true},
		{"MOTD", `./run $MOTD`, false},
		{"MOTD", `eval "$MOTD"`, false},
		{"MOTD", `bash -c 'echo $MOTD'`, false},
		{"MOTD", `bash -c "$MOTD"`, false},
		{"MOTD", `"$MOTD"`, false},
		{"MOTD", `./run "${MOTD:0:1}"`, false},
		{"MOTD", `echo $((MOTD+$MOTD))`, false},
		{"BASH_ENV", `./run`, false},
		{"JVM_OPTS", `./run`, false},
		{"JVM_ARGS", `./run`, false},
		{"STARTUP", `./run`, false},
		{"LD_AUDIT", `./run`, false},
	} {
		_, err := values("X", "$(id)").Command(fleet.Plan{Command: c.command, Env: map[string]string{c.name: "a %X%"}})
		if (err == nil) != c.ok {
			t.Errorf("%s with %s: %v", c.command, c.name, err)
		}
	}
}

func TestReferenceNamesAreUnique(t *testing.T) {
	p := fleet.Plan{Command: `ORRERY_START__1=a ./run %X%`, Env: map[string]string{"ORRERY_START_1": "own"}}
	got, err := values("X", "v").Command(p)
	if err != nil || len(got.Env) != 1 || got.Env[0] != "ORRERY_START___1=v" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestImagesAndAddressesAreCheckedWithTheirValues(t *testing.T) {
	for value, ok := range map[string]bool{"1.21": true, "a b": false, "$(id)": false, "": true} {
		v := values("X", value)
		if _, err := v.Image(fleet.Plan{Runtime: fleet.RuntimeDocker, Container: isolation.Container{Image: "games:a%X%"}}); (err == nil) != ok {
			t.Errorf("image with %q: %v", value, err)
		}
		if _, err := v.HostAddress("a%X%.%RACK%.example.com"); (err == nil) != ok {
			t.Errorf("address with %q: %v", value, err)
		}
	}
	docker := func(image string) fleet.Plan {
		return fleet.Plan{Runtime: fleet.RuntimeDocker, Container: isolation.Container{Image: image}}
	}
	for value, part := range map[string]bool{"443/evil": false, "a:b": false, "a@b": false, "1.21-java": true} {
		if got, err := values("X", value).Image(docker("games:%X%")); (err == nil) != part {
			t.Errorf("%q in the tag of an image: %s, %v", value, got, err)
		}
	}
	if got, err := values("X", "registry.example:443/games:1").Image(docker("%X%")); err != nil {
		t.Errorf("a whole image: %s, %v", got, err)
	}
	if _, err := values().HostAddress("the group's own: %JAVA%"); err != nil {
		t.Errorf("a group's own address is held to it: %v", err)
	}
}

func TestBuiltInsAreNeverGivenAtStart(t *testing.T) {
	given := map[string]string{"PORT": "1; id", "X": "v"}
	all := compose.Placeholders(compose.PlaceholderContext{Placement: fleet.Placement{Port: 7, Values: given}})
	got, err := Split(all, given).Command(fleet.Plan{Command: "./run %PORT%"})
	if err != nil || got.Text != "./run 7" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFilesThatACommandReadsAsCode(t *testing.T) {
	for command, want := range map[string]string{
		"java -jar s.jar server.properties":             "",
		"java @user_args.txt @a/b.txt nogui":            "user_args.txt a/b.txt",
		"exec bash -c 'java @opts -jar s.jar'":          "java opts s.jar",
		"sh run":                                        "run",
		"bash -eo pipefail ./run.d/start server.cfg":    "pipefail run.d/start",
		"cd x && . ./settings; ./serve --config s.yml":  "settings",
		"/usr/bin/python3.13 -u /srv/main.conf a.conf":  "/srv/main.conf",
		"bash <commands.txt":                            "commands.txt",
		"./serve server.properties mail@example.com a@": "",
	} {
		if got := strings.Join(Files(command), " "); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}
