/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions of all commands: connection, queries, output, signals; and the commands that only print
 * an answer. */
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "ctl.h"
#include "table.h"

static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
	(void)sig;
	stop = 1;
}

void ctl_catch_signals(void)
{
	struct sigaction sa = {.sa_handler = on_signal};

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
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

enum ctl_status ctl_report(enum ctl_status s, const char *fmt, ...)
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

/* ---- queries ---- */

enum ctl_status ctl_open(struct ctl *c)
{
	const char *name = c->opt.router[0] != '\0' ? c->opt.router : NULL;
	enum ctl_status s;
	char err[700];

	if (c->t.fd >= 0)
		return CTL_OK;
	s = tel_open(&c->t, &c->places, name, err, sizeof(err));
	return s == CTL_OK ? s : ctl_report(s, "%s", err);
}

/* Print the values that the router accepts. */
static void print_allowed(const json_t *refusal)
{
	const char *of;
	json_t *words, *word;
	size_t i;

	json_object_foreach (json_object_get(refusal, "allowed"), of, words) {
		fprintf(stderr, "  %s:", of);
		json_array_foreach (words, i, word)
			fprintf(stderr, "%s %s", i != 0 ? "," : "", json_string_value(word));
		fprintf(stderr, "\n");
	}
}

json_t *ctl_query(struct ctl *c, const char *command, const char *pages, enum ctl_status *status)
{
	char err[256];
	json_t *v;

	*status = ctl_open(c);
	if (*status != CTL_OK)
		return NULL;
	v = tel_ask_pages(&c->t, command, pages, err, sizeof(err));
	if (v == NULL) {
		*status = ctl_report(CTL_DOWN, "%s", err);
		return NULL;
	}
	if (json_is_null(v)) {
		*status = ctl_report(CTL_REFUSED, "router %s does not have the command %.*s",
				     c->t.prefix, (int)strcspn(command, ","), command);
	} else if (tel_is_error(v)) {
		if (c->opt.json)
			ctl_print(c, v, NULL);
		*status = ctl_report(CTL_REFUSED, "%.*s: %s (%s)", (int)strcspn(command, ","),
				     command, json_string_value(json_object_get(v, "message")),
				     json_string_value(json_object_get(v, "error")));
		print_allowed(v);
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

enum ctl_status ctl_run_query(struct ctl *c, const struct ctl_command *row, int argc, char **argv)
{
	char command[900];
	size_t n = (size_t)snprintf(command, sizeof(command), "%s", row->path);
	enum ctl_status status;
	const json_t *list;
	json_t *v;

	for (int i = 0; i < argc && n < sizeof(command); i++)
		n += (size_t)snprintf(command + n, sizeof(command) - n, ",%s", argv[i]);
	if (n >= sizeof(command))
		return ctl_report(CTL_USAGE, "%s: arguments exceed %zu bytes", row->name,
				  sizeof(command) - strlen(row->path) - 1);
	v = ctl_query(c, command, row->pages, &status);
	if (v == NULL)
		return status;
	/* A row with columns prints only the list. JSON has the whole answer. */
	list = row->columns != NULL && !c->opt.json ? json_object_get(v, row->pages) : NULL;
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
		return ctl_report(CTL_USAGE,
				  "raw: a command starts with / and has at most 900 bytes");
	v = ctl_query(c, argv[0], NULL, &status);
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
	if (tel_list_routers(&c->places, names, sizeof(names)) == 0)
		return ctl_open(c); /* prints the reason */
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
	if (tel_copy_metrics(&c->t, stdout, err, sizeof(err)) < 0)
		return ctl_report(CTL_DOWN, "%s", err);
	return CTL_OK;
}
