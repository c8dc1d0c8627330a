/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kvroute-ctl: what a router does and is told, from a terminal.
 */
#include <errno.h>
#include <string.h>

#include "ctl.h"
#include "kvr_conf.h"

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
	{.name = "patience",
	 .type = KVR_OPT_F64,
	 FIELD(patience),
	 .min = 0,
	 .max = 86400,
	 .def = "30",
	 .unit = "s",
	 .help = "doctor, exporter: a drain, or a request without progress, is named after so "
		 "long"},
	{.name = "listen",
	 .type = KVR_OPT_STRING,
	 FIELD(listen),
	 .size = 128,
	 .def = "127.0.0.1:9765",
	 .help = "exporter: address:port or [v6]:port"},
	{0},
};

static void usage(FILE *out)
{
	struct ctl_options d;

	kvr_conf_defaults(table, &d);
	fprintf(out, "kvroute-ctl: look into a kvroute on this host, and tell it what to do\n\n"
		     "usage: kvroute-ctl [options] COMMAND [ARGUMENT...]\n\n");
	for (const struct ctl_command *c = ctl_commands; c->name != NULL; c++)
		fprintf(out, "  %s%s%-*s  %s\n", c->name, c->args[0] != '\0' ? " " : "",
			(int)(27 - strlen(c->name) - (c->args[0] != '\0')), c->args, c->help);
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
	ctl_signals();
	tel_places(&c.places);
	status = run(&c, argc - first, argv + first);
	tel_close(&c.t);
	if (fflush(stdout) != 0 && status == CTL_OK)
		status = ctl_say(CTL_REFUSED, "standard output: %s", strerror(errno));
	return status;
}
