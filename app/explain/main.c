/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kvroute-explain plays a scenario (one JSON object per line) through the router's libraries in
 * virtual time, and writes each decision with its terms.
 */
#include "explain.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "kvr_conf.h"

int main(int argc, char **argv)
{
	FILE *in = stdin;
	static struct kvr_sc_world w;
	static struct ex_run run;
	int status;

	if (kvr_conf_version(argc, argv, "kvroute-explain", stdout))
		return 0;
	if (argc == 2 && strcmp(argv[1], "--help") == 0) {
		printf("kvroute-explain: routing decisions of a scenario, in virtual time\n\n"
		       "usage: kvroute-explain FILE|-\n\n"
		       "FILE has one JSON object per line. Answers, one JSON object per line, are written to standard output.\n");
		return 0;
	}
	if (argc != 2) {
		fprintf(stderr, "usage: kvroute-explain FILE|-\n");
		return 2;
	}
	if (strcmp(argv[1], "-") != 0)
		in = fopen(argv[1], "r");
	if (in == NULL) {
		fprintf(stderr, "kvroute-explain: %s: %s\n", argv[1], strerror(errno));
		return 2;
	}
	if (!ex_start_eal()) {
		fprintf(stderr,
			"kvroute-explain: cannot start the EAL; check that the process may allocate 64 MiB\n");
		return 2;
	}
	STAILQ_INIT(&run.todo);
	STAILQ_INIT(&run.later);
	run.exec = (struct kvr_exec){.ops = &ex_ops, .arg = &w};
	w.own = &run;
	kvr_sc_world_init(&w, &ex_executor, stdout);
	status = kvr_sc_script(&w, in);
	if (ferror(in) || fflush(stdout) != 0)
		status = 2;
	fclose(in);
	return status;
}
