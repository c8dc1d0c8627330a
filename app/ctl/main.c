/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kvroute-ctl: what a router does and is told, from a terminal.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "ctl.h"
#include "kvr_conf.h"
#include "snap.h"
#include "table.h"

#define FIELD(f) .offset = offsetof(struct ctl_options, f)

static const struct kvr_opt table[] = {
	{.name = "router",
	 .type = KVR_OPT_STRING,
	 FIELD(router),
	 .size = 64,
	 .def = "",
	 .help = "file prefix of the router, when several run here"},
	{.name = "json",
	 .type = KVR_OPT_BOOL,
	 FIELD(json),
	 .def = "no",
	 .help = "answers as JSON, for programs"},
	{.name = "seconds",
	 .type = KVR_OPT_F64,
	 FIELD(seconds),
	 .min = 0,
	 .max = 3600,
	 .def = "0",
	 .unit = "s",
	 .help = "between two looks of top (1), watch (1), doctor (10), exporter (2); 0 = these"},
	{.name = "count",
	 .type = KVR_OPT_U32,
	 FIELD(count),
	 .min = 0,
	 .max = 1000000000,
	 .def = "0",
	 .help = "looks of top and watch; 0 = until it is stopped"},
	{.name = "listen",
	 .type = KVR_OPT_STRING,
	 FIELD(listen),
	 .size = 128,
	 .def = "127.0.0.1:9765",
	 .help = "exporter: address:port or [v6]:port"},
	{0},
};

static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
	(void)sig;
	stop = 1;
}

bool ctl_wait(double seconds)
{
	struct pollfd in = {.fd = isatty(STDIN_FILENO) ? STDIN_FILENO : -1, .events = POLLIN};
	char key;

	if (stop == 0 && poll(&in, 1, (int)(seconds * 1000)) == 1 &&
	    (read(STDIN_FILENO, &key, 1) != 1 || key == 'q'))
		return false;
	return stop == 0;
}

enum ctl_status ctl_say(enum ctl_status s, const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "kvroute-ctl: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	return s;
}

/* ---- asking ---- */

enum ctl_status ctl_open(struct ctl *c)
{
	const char *name = c->opt.router[0] != '\0' ? c->opt.router : NULL;
	enum ctl_status s;
	char err[700];

	if (c->t.fd >= 0)
		return CTL_OK;
	s = tel_open(&c->t, &c->places, name, err, sizeof(err));
	return s == CTL_OK ? s : ctl_say(s, "%s", err);
}

json_t *ctl_get(struct ctl *c, const char *command, const char *pages, enum ctl_status *status)
{
	char err[256];
	json_t *v;

	*status = ctl_open(c);
	if (*status != CTL_OK)
		return NULL;
	v = tel_ask_all(&c->t, command, pages, err, sizeof(err));
	if (v == NULL) {
		*status = ctl_say(CTL_DOWN, "%s", err);
		return NULL;
	}
	if (json_is_null(v)) {
		*status = ctl_say(CTL_REFUSED, "router %s does not know %.*s", c->t.prefix,
				  (int)strcspn(command, ","), command);
	} else if (tel_refused(v)) {
		if (c->opt.json)
			ctl_print(c, v, NULL);
		*status = ctl_say(CTL_REFUSED, "%.*s: %s (%s)", (int)strcspn(command, ","), command,
				  json_string_value(json_object_get(v, "message")),
				  json_string_value(json_object_get(v, "error")));
	} else {
		return v;
	}
	json_decref(v);
	return NULL;
}

void ctl_print(const struct ctl *c, const json_t *v, const char *columns)
{
	if (!c->opt.json) {
		table_print(v, columns, stdout);
		return;
	}
	json_dumpf(v, stdout, JSON_ENCODE_ANY | JSON_INDENT(1));
	printf("\n");
}

enum ctl_status ctl_ask(struct ctl *c, const struct ctl_command *row, int argc, char **argv)
{
	char command[900];
	size_t n = (size_t)snprintf(command, sizeof(command), "%s", row->path);
	enum ctl_status status;
	const json_t *list;
	json_t *v;

	for (int i = 0; i < argc && n < sizeof(command); i++)
		n += (size_t)snprintf(command + n, sizeof(command) - n, ",%s", argv[i]);
	if (n >= sizeof(command))
		return ctl_say(CTL_USAGE, "%s: arguments of more than %zu bytes", row->name,
			       sizeof(command) - strlen(row->path) - 1);
	v = ctl_get(c, command, row->pages, &status);
	if (v == NULL)
		return status;
	/* People want the list; programs, what it is part of, too. */
	list = row->pages != NULL && !c->opt.json ? json_object_get(v, row->pages) : NULL;
	ctl_print(c, list != NULL ? list : v, row->columns);
	json_decref(v);
	return CTL_OK;
}

enum ctl_status ctl_raw(struct ctl *c, int argc, char **argv)
{
	enum ctl_status status;
	json_t *v;

	(void)argc;
	if (argv[0][0] != '/' || strlen(argv[0]) > 900)
		return ctl_say(CTL_USAGE, "raw: a command begins with / and has at most 900 bytes");
	v = ctl_get(c, argv[0], NULL, &status);
	if (v == NULL)
		return status;
	ctl_print(c, v, NULL);
	json_decref(v);
	return CTL_OK;
}

enum ctl_status ctl_routers(struct ctl *c, int argc, char **argv)
{
	char names[512];

	(void)argc;
	(void)argv;
	if (tel_list(&c->places, names, sizeof(names)) == 0)
		return ctl_open(c); /* says why */
	printf("%s\n", names);
	return CTL_OK;
}

enum ctl_status ctl_metrics(struct ctl *c, int argc, char **argv)
{
	const enum ctl_status status = ctl_open(c);
	char err[256];

	(void)argc;
	(void)argv;
	if (status != CTL_OK)
		return status;
	if (tel_metrics(&c->t, stdout, err, sizeof(err)) < 0)
		return ctl_say(CTL_DOWN, "%s", err);
	printf("# EOF\n");
	return CTL_OK;
}

/* ---- main ---- */

static void usage(FILE *out)
{
	struct ctl_options d;

	kvr_conf_defaults(table, &d);
	fprintf(out, "kvroute-ctl: look into a kvroute on this host, and tell it what to do\n\n"
		     "usage: kvroute-ctl [options] COMMAND [ARGUMENT...]\n\n");
	for (const struct ctl_command *c = ctl_commands; c->name != NULL; c++)
		fprintf(out, "  %s%s%-*s %s\n", c->name, c->args[0] != '\0' ? " " : "",
			(int)(28 - strlen(c->name) - (c->args[0] != '\0')), c->args, c->help);
	fprintf(out, "\n");
	kvr_conf_args_help(table, &d, 10, out);
	fprintf(out,
		"\nexit status: 0; 1 the router refuses, or doctor has found something; 2 usage; "
		"3 no router, or no answer;\n4 not permitted; 5 several routers and no --router\n");
}

static enum ctl_status run(struct ctl *c, int argc, char **argv)
{
	const struct ctl_command *row = argc > 0 ? ctl_find(argv[0]) : NULL;
	int least, most;

	if (argc == 0) {
		usage(stderr);
		return CTL_USAGE;
	}
	if (row == NULL)
		return ctl_say(CTL_USAGE, "no command \"%s\"; --help lists them", argv[0]);
	ctl_arity(row, &least, &most);
	if (argc - 1 < least || argc - 1 > most)
		return ctl_say(CTL_USAGE, "usage: kvroute-ctl %s%s%s", row->name,
			       row->args[0] != '\0' ? " " : "", row->args);
	if (row->run != NULL)
		return row->run(c, argc - 1, argv + 1);
	return ctl_ask(c, row, argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
	struct sigaction sa = {.sa_handler = on_signal};
	static struct ctl c = {.t = {.fd = -1}};
	enum ctl_status status;
	char err[300];
	int first, rc;

	if (kvr_conf_version(argc, argv, "kvroute-ctl", stdout))
		return 0;
	rc = kvr_conf_args_rest(table, &c.opt, argc, argv, &first, err, sizeof(err));
	if (rc == 0) {
		usage(stdout);
		return 0;
	}
	if (rc < 0)
		return ctl_say(CTL_USAGE, "%s", err);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
	tel_places(&c.places);
	status = run(&c, argc - first, argv + first);
	tel_close(&c.t);
	if (fflush(stdout) != 0 && status == CTL_OK)
		status = ctl_say(CTL_REFUSED, "standard output: %s", strerror(errno));
	return status;
}
