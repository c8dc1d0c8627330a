/* SPDX-License-Identifier: BSD-3-Clause */
/* kvroute-ctl: options, usage, dispatch of commands. */
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
	 .help = "file prefix of the router, if several run on this host"},
	{.name = "json", .type = KVR_OPT_BOOL, FIELD(json), .def = "no", .help = "print JSON"},
	{.name = "seconds",
	 .type = KVR_OPT_F64,
	 FIELD(seconds),
	 .min = 0,
	 .max = 3600,
	 .def = "0",
	 .unit = "s",
	 .help = "interval between samples; 0 = top 1, watch 1, doctor 10, exporter 2"},
	{.name = "count",
	 .type = KVR_OPT_U32,
	 FIELD(count),
	 .min = 0,
	 .max = 1000000000,
	 .def = "0",
	 .help = "number of samples of top and watch; 0 = until stopped"},
	{.name = "patience",
	 .type = KVR_OPT_F64,
	 FIELD(patience),
	 .min = 0,
	 .max = 86400,
	 .def = "30",
	 .unit = "s",
	 .help = "doctor, exporter: report a drain or a request without progress after this time"},
	{.name = "listen",
	 .type = KVR_OPT_STRING,
	 FIELD(listen),
	 .size = 128,
	 .def = "127.0.0.1:9765",
	 .help = "exporter: address:port or [v6]:port to listen on"},
	{0},
};

static void print_usage(FILE *out)
{
	struct ctl_options d;

	kvr_conf_defaults(table, &d);
	fprintf(out,
		"kvroute-ctl: inspect and control a kvroute router on this host\n\nusage: kvroute-ctl [options] COMMAND [ARGUMENT...]\n\n");
	for (const struct ctl_command *c = ctl_commands; c->name != NULL; c++)
		fprintf(out, "  %s%s%-*s  %s\n", c->name, c->args[0] != '\0' ? " " : "",
			(int)(27 - strlen(c->name) - (c->args[0] != '\0')), c->args, c->help);
	fprintf(out, "\n");
	kvr_conf_args_help(table, &d, 10, out);
	fprintf(out,
		"\nexit status: 0 success; 1 error of the router, or findings of doctor; 2 usage; 3 no router or no answer;\n4 permission denied; 5 several routers and no --router\n");
}

static enum ctl_status run_command(struct ctl *c, int argc, char **argv)
{
	const struct ctl_command *row = argc > 0 ? ctl_find(argv[0]) : NULL;
	int least, most;

	if (argc == 0) {
		print_usage(stderr);
		return CTL_USAGE;
	}
	if (row == NULL)
		return ctl_report(CTL_USAGE, "unknown command \"%s\"; --help lists the commands",
				  argv[0]);
	ctl_count_args(row, &least, &most);
	if (argc - 1 < least || argc - 1 > most)
		return ctl_report(CTL_USAGE, "usage: kvroute-ctl %s%s%s", row->name,
				  row->args[0] != '\0' ? " " : "", row->args);
	if (row->run != NULL)
		return row->run(c, argc - 1, argv + 1);
	return ctl_run_query(c, row, argc - 1, argv + 1);
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
		print_usage(stdout);
		return 0;
	}
	if (rc < 0)
		return ctl_report(CTL_USAGE, "%s", err);
	ctl_catch_signals();
	tel_places(&c.places);
	status = run_command(&c, argc - first, argv + first);
	tel_close(&c.t);
	if (fflush(stdout) != 0 && status == CTL_OK)
		status = ctl_report(CTL_REFUSED, "standard output: %s", strerror(errno));
	return status;
}
