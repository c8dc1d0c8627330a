/* SPDX-License-Identifier: BSD-3-Clause */
/* Counters as Prometheus text: one pass over the families, for each of them one sample per counter
 * and instance. process_* are read from /proc at each call. */
#include "kvr_metrics.h"

#include <dirent.h>
#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

void kvr_metrics_head(const char *name, const char *type, const char *help, FILE *out)
{
	fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_sample(const struct kvr_family *family, const char *value, const char *labels,
			 uint64_t v, FILE *out)
{
	const char *comma = labels != NULL && value != NULL ? "," : "";

	fprintf(out, "%s", family->name);
	if (labels != NULL || value != NULL)
		fprintf(out, "{%s%s", labels != NULL ? labels : "", comma);
	if (value != NULL)
		fprintf(out, "%s=\"%s\"", family->label, value);
	fprintf(out, "%s %" PRIu64 "\n", labels != NULL || value != NULL ? "}" : "", v);
}

void kvr_metrics_write(const struct kvr_stats_def *def, const struct kvr_family *families,
		       const uint64_t *const v[], const char *const labels[], unsigned int n,
		       FILE *out)
{
	for (const struct kvr_family *f = families; f->name != NULL; f++) {
		const struct kvr_counter *c = &def->counters[f->samples->counter];
		const bool gauge = c->flags & KVR_COUNTER_F_GAUGE;

		kvr_metrics_head(f->name, gauge ? "gauge" : "counter",
				 f->help != NULL ? f->help : c->help, out);
		for (unsigned int k = 0; k < n; k++)
			for (const struct kvr_sample *s = f->samples; s->counter != KVR_TERMS_END;
			     s++)
				write_sample(f, s->value, labels != NULL ? labels[k] : NULL,
					     v[k][s->counter], out);
	}
}

void kvr_metrics_build(const char *labels, FILE *out)
{
	kvr_metrics_head("kvr_build_info", "gauge", "Version of the program, as labels", out);
	fprintf(out, "kvr_build_info{%s} 1\n", labels);
}

/* ---- process_* ---- */

static double read_clock(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void write_value(const char *name, const char *type, const char *help, double v, FILE *out)
{
	kvr_metrics_head(name, type, help, out);
	fprintf(out, "%s %.17g\n", name, v);
}

/* Fields of /proc/self/stat after the program's name. @return false: not readable. */
static bool read_stat(uint64_t *start_ticks, uint64_t *virtual_bytes, uint64_t *resident_pages)
{
	FILE *f = fopen("/proc/self/stat", "re");
	char line[1024], *at = NULL;
	int n = 0;

	if (f == NULL)
		return false;
	if (fgets(line, sizeof(line), f) != NULL)
		at = strrchr(line, ')'); /* the name may have blanks and brackets */
	fclose(f);
	if (at != NULL)
		n = sscanf(at + 1,
			   " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
			   "%*s %*s %" SCNu64 " %" SCNu64 " %" SCNu64,
			   start_ticks, virtual_bytes, resident_pages);
	return n == 3;
}

static bool count_fds(double *n)
{
	DIR *d = opendir("/proc/self/fd");

	if (d == NULL)
		return false;
	*n = -1; /* the descriptor of the folder itself */
	for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d))
		*n += e->d_name[0] != '.';
	closedir(d);
	return true;
}

void kvr_metrics_process(FILE *out)
{
	uint64_t ticks, bytes, pages;
	struct rlimit limit;
	double fds;

	write_value("process_cpu_seconds_total", "counter",
		    "CPU time of the process in user and kernel mode, in seconds",
		    read_clock(CLOCK_PROCESS_CPUTIME_ID), out);
	if (read_stat(&ticks, &bytes, &pages)) {
		write_value("process_start_time_seconds", "gauge",
			    "Start of the process, in seconds since 1970",
			    read_clock(CLOCK_REALTIME) - read_clock(CLOCK_BOOTTIME) +
				    (double)ticks / (double)sysconf(_SC_CLK_TCK),
			    out);
		write_value("process_virtual_memory_bytes", "gauge",
			    "Virtual memory of the process, in bytes", (double)bytes, out);
		write_value("process_resident_memory_bytes", "gauge",
			    "Resident memory of the process, in bytes",
			    (double)pages * (double)sysconf(_SC_PAGESIZE), out);
	}
	if (count_fds(&fds))
		write_value("process_open_fds", "gauge", "Open file descriptors", fds, out);
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		write_value("process_max_fds", "gauge", "Limit of open file descriptors",
			    (double)limit.rlim_cur, out);
}
