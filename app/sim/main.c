/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kvroute-sim runs seeds. Each seed runs twice and both runs must be equal. A failing seed is
 * shrunk: this program is started again with fewer faults and peers, so that a crash is handled as
 * well.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rte_eal.h>

#include "kvr_conf.h"
#include "kvr_sim.h"
#include "scale/study.h"
#include "sim.h"

struct options {
	uint64_t first, last;
	bool faults, verbose, once, keep_going, shrink, list, speed, seen, nightly;
	const char *pcap, *file;
	int n_set;
	char **set;
};

static struct sim_plan now; /* for the signal handler */

static void print_usage(FILE *out)
{
	fputs("usage: kvroute-sim [option...] [FIELD=VALUE...]\n"
	      "       kvroute-sim --scale [option...]\n"
	      "  -s, --seed N       run this seed\n"
	      "      --seeds A:B    run the seeds from A to B\n"
	      "      --file FILE    then run the lines of FILE: a seed and FIELD=VALUE words; # begins a comment\n"
	      "      --calm         set all faults to 0, except those given as FIELD=VALUE\n"
	      "      --once         run each seed once; default: twice, and both runs must be equal\n"
	      "  -k, --keep-going   continue after a failure\n"
	      "      --no-shrink    do not search for a smaller plan that fails\n"
	      "      --pcap FILE    write the frames of the run, for the dissector\n"
	      "      --seen         print how often each fault occurred, and the router's counters that\n"
	      "                     never moved\n"
	      "      --nightly      fail if a place in the code was never reached or never made to fail,\n"
	      "                     or a fault never occurred; needs a build with -Dc_args=-DKVR_SIM\n"
	      "      --speed        print simulated seconds per second\n"
	      "  -v, --verbose      print the events of the run\n"
	      "      --fields       list the fields, their values in seeds and their meaning\n"
	      "  -h, --help         print this text\n"
	      "      --version      print name and version\n"
	      "If an option or FIELD is given twice, the last value counts.\n",
	      out);
}

static void list_fields(void)
{
	for (const struct sim_field *f = sim_fields; f->name != NULL; f++)
		printf("%-14s %4u..%-5u in %3u of 100 seeds, otherwise %u: %s\n", f->name, f->lo,
		       f->hi, f->chance, f->plain, f->help);
}

static int parse_seeds(const char *text, struct options *o)
{
	char *end;

	o->first = o->last = strtoull(text, &end, 10);
	if (*end == ':')
		o->last = strtoull(end + 1, &end, 10);
	return *end == '\0' && o->last >= o->first ? 0 : -EINVAL;
}

static int parse_options(int argc, char **argv, struct options *o)
{
	static const struct option options[] = {
		{"seed", required_argument, NULL, 's'},
		{"seeds", required_argument, NULL, 's'},
		{"calm", no_argument, NULL, 'c'},
		{"once", no_argument, NULL, '1'},
		{"keep-going", no_argument, NULL, 'k'},
		{"no-shrink", no_argument, NULL, 'n'},
		{"file", required_argument, NULL, 'F'},
		{"pcap", required_argument, NULL, 'p'},
		{"nightly", no_argument, NULL, 'N'},
		{"speed", no_argument, NULL, 'S'},
		{"seen", no_argument, NULL, 'e'},
		{"verbose", no_argument, NULL, 'v'},
		{"fields", no_argument, NULL, 'f'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int c;

	*o = (struct options){.first = 1, .last = 1, .faults = true, .shrink = true};
	while ((c = getopt_long(argc, argv, "s:kvh", options, NULL)) != -1) {
		o->faults = o->faults && c != 'c';
		o->once = o->once || c == '1';
		o->keep_going = o->keep_going || c == 'k';
		o->shrink = o->shrink && c != 'n';
		o->speed = o->speed || c == 'S';
		o->seen = o->seen || c == 'e';
		o->nightly = o->nightly || c == 'N';
		o->verbose = o->verbose || c == 'v';
		o->list = o->list || c == 'f';
		if (c == 'p')
			o->pcap = optarg;
		if (c == 'F')
			o->file = optarg;
		if (c == 'h') {
			print_usage(stdout);
			exit(0);
		}
		if (c == '?' || (c == 's' && parse_seeds(optarg, o) < 0)) {
			print_usage(stderr);
			return -EINVAL;
		}
	}
	o->set = argv + optind;
	o->n_set = argc - optind;
	return 0;
}

static int plan_of(const struct options *o, uint64_t seed, struct sim_plan *p)
{
	sim_plan_draw(p, seed, o->faults);
	for (int i = 0; i < o->n_set; i++)
		if (sim_plan_set(p, o->set[i]) < 0) {
			fprintf(stderr,
				"kvroute-sim: %s: unknown field, or value out of range; --fields lists all fields\n",
				o->set[i]);
			return -EINVAL;
		}
	return 0;
}

/* ---- shrinking a failing run ---- */

/* Run the plan in a process of its own. @return whether it fails there as well. */
static bool fails_alone(const struct sim_plan *p)
{
	char text[2048], *word[80] = {NULL}, *at;
	uint32_t n = 0;
	int status;
	pid_t pid;

	sim_plan_text(p, text, sizeof(text));
	word[n++] = (char *)(uintptr_t) "kvroute-sim";
	word[n++] = (char *)(uintptr_t) "--no-shrink";
	for (at = strtok(text, " "); at != NULL && n + 1 < RTE_DIM(word); at = strtok(NULL, " "))
		word[n++] = at;
	pid = fork();
	if (pid == 0) {
		if (freopen("/dev/null", "w", stdout) != NULL &&
		    freopen("/dev/null", "w", stderr) != NULL)
			execv("/proc/self/exe", word);
		_exit(127);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && status != 0 &&
	       !(WIFEXITED(status) && WEXITSTATUS(status) == 127);
}

/* Reduce a field as far as the run still fails: a fault to 0, or fewer of them, or fewer peers. */
static bool shrink_field(struct sim_plan *p, const struct sim_field *f)
{
	uint32_t *at = sim_field_at(p, f);
	const uint32_t was = *at;
	const uint32_t least = f->kind == SIM_FAULT ? 0 : f->lo;

	if (f->kind == SIM_SIZE || was == least)
		return false;
	for (uint32_t v = least; v < was; v = v + (was - v + 1) / 2) {
		*at = v;
		if (fails_alone(p))
			return true;
		if (f->kind == SIM_FAULT && was > 8)
			break;
	}
	*at = was;
	return false;
}

static void make_smaller(struct sim_plan *p)
{
	char text[2048];
	bool any = true;

	if (!fails_alone(p)) {
		printf("the run does not fail in a process of its own\n");
		return;
	}
	for (uint32_t round = 0; round < 4 && any; round++) {
		any = false;
		for (const struct sim_field *f = sim_fields; f->name != NULL; f++)
			any = shrink_field(p, f) || any;
	}
	sim_plan_text(p, text, sizeof(text));
	printf("smaller: kvroute-sim -v --once %s\n", text);
}

/* ---- seeds ---- */

static void on_crash(int sig)
{
	char text[2048];
	const int n = sim_plan_text(&now, text, sizeof(text));

	(void)!write(STDOUT_FILENO, "crashed: kvroute-sim ", 21);
	(void)!write(STDOUT_FILENO, text, n > 0 ? (size_t)n : 0);
	(void)!write(STDOUT_FILENO, "\n", 1);
	signal(sig, SIG_DFL);
	raise(sig);
}

static volatile sig_atomic_t enough; /* finish the current run, report and exit */

static void on_end_wished(int sig)
{
	RTE_SET_USED(sig);
	enough = 1;
}

static void print_failure(const struct sim_plan *p, const struct sim_result *r)
{
	char text[2048];

	sim_plan_text(p, text, sizeof(text));
	printf("FAILED: %s\n  at %" PRIu64 ".%06" PRIu64 " s: kvroute-sim -v --once %s\n", r->why,
	       r->ns / SIM_S, r->ns % SIM_S / 1000, text);
	fflush(stdout);
}

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* @return 0; 1: the run failed; -errno. */
static int run_plan(const struct options *o, struct sim_plan p, struct sim_result *r)
{
	struct sim_result again;
	int rc;

	now = p;
	rc = world_run(&p, o->verbose, o->pcap, r);
	if (rc == 0 && !r->failed && !o->once) {
		rc = world_run(&p, false, NULL, &again);
		if (rc == 0 && again.digest != r->digest) {
			r->failed = true;
			snprintf(r->why, sizeof(r->why), "two runs differ: %" PRIx64 ", %" PRIx64,
				 r->digest, again.digest);
		}
	}
	if (rc < 0 && !r->failed) {
		fprintf(stderr, "kvroute-sim: seed %" PRIu64 ": %s\n", p.seed, strerror(-rc));
		return rc;
	}
	if (!r->failed)
		return 0;
	print_failure(&p, r);
	if (o->shrink && !o->verbose)
		make_smaller(&p);
	fflush(stdout);
	return 1;
}

static void start_eal(void)
{
	const char *argv[] = {
		"kvroute-sim", "--no-huge", "--no-shconf", "--no-pci", "--no-telemetry",
		"-l",	       "0",	    "-m",	   "512",      "--log-level=*:error"};

	if (rte_eal_init((int)RTE_DIM(argv), (char **)(uintptr_t)argv) < 0) {
		fprintf(stderr,
			"kvroute-sim: cannot start the EAL; check that 512 MiB of memory are free\n");
		exit(1);
	}
}

/* A counter that never moved is not tested. */
static void report_seen(void)
{
	const char *group = "";
	uint32_t n = 0;

	sim_print_bugs();
	for (uint32_t i = 0; i < sim_seen.n; i++) {
		n += sim_seen.seen[i];
		if (sim_seen.seen[i])
			continue;
		if (strcmp(group, sim_seen.group[i]) != 0)
			printf("\nnever, %s:", group = sim_seen.group[i]);
		printf(" %s", sim_seen.name[i]);
	}
	printf("\n%u of %u counters of the router have moved\n", n, sim_seen.n);
}

/* @return number of places that were never reached or never failed; -ENOSYS: this build has no
 * places. */
static int report_sites(void)
{
	const char *name, *text;
	uint64_t reached, failed;
	bool fails;
	int n = 0;

	for (uint32_t i = 0; (name = kvr_sim_site_get(i, &text, &fails, &reached, &failed)) != NULL;
	     i++) {
		printf("%-18s %12" PRIu64 " visits, %8" PRIu64 " failures: %s\n", name, reached,
		       failed, text);
		if (reached != 0 && (!fails || failed != 0))
			continue;
		printf("NEVER: %s\n", name);
		n++;
	}
	n += (int)sim_print_bugs();
	return kvr_sim_site_get(0, &text, &fails, &reached, &failed) != NULL ? n : -ENOSYS;
}

/* Results of all runs. */
struct sum {
	struct sim_result r;
	uint64_t seeds, failed, digest;
	double begin;
};

/* @return false: stop. */
static bool run_one(const struct options *o, const struct sim_plan *p, struct sum *t)
{
	struct sim_result r = {0};
	const int rc = run_plan(o, *p, &r);

	if (rc < 0)
		exit(2);
	t->seeds++;
	t->failed += (uint64_t)rc;
	t->digest = r.digest;
	t->r.ns += r.ns;
	t->r.requests += r.requests;
	t->r.frames += r.frames;
	t->r.retries += r.retries;
	for (uint32_t i = 0; i < RTE_DIM(r.ends); i++)
		t->r.ends[i] += r.ends[i];
	return !enough && (rc == 0 || o->keep_going);
}

static bool run_seeds(const struct options *o, struct sum *t)
{
	struct sim_plan p;

	for (uint64_t seed = o->first; seed <= o->last; seed++) {
		if (plan_of(o, seed, &p) < 0)
			exit(2);
		if (!run_one(o, &p, t))
			return false;
	}
	return true;
}

/* Each line of the file is a plan. */
static void run_file(const struct options *o, struct sum *t)
{
	FILE *f = fopen(o->file, "r");
	struct options line = *o;
	struct sim_plan p;
	char text[1024], *word[64];

	if (f == NULL) {
		fprintf(stderr, "kvroute-sim: %s: %s\n", o->file, strerror(errno));
		exit(2);
	}
	while (fgets(text, sizeof(text), f) != NULL) {
		text[strcspn(text, "#\n")] = '\0';
		line.n_set = 0;
		line.set = word;
		for (char *at = strtok(text, " \t"); at != NULL && line.n_set < (int)RTE_DIM(word);
		     at = strtok(NULL, " \t"))
			word[line.n_set++] = at;
		if (line.n_set == 0)
			continue;
		line.set++;
		line.n_set--;
		if (plan_of(&line, strtoull(word[0], NULL, 10), &p) < 0)
			exit(2);
		if (!run_one(o, &p, t))
			break;
	}
	fclose(f);
}

static void print_sum(const struct options *o, const struct sum *t)
{
	const uint32_t *ends = t->r.ends;

	printf("%" PRIu64 " seeds, %" PRIu64 " failed; %" PRIu64 " virtual s, %u requests (%u "
	       "finished, %u failed, %u rejected, %u cancelled, %u timeouts, %u lost, %u silent; "
	       "%u "
	       "tried at another router), %" PRIu64 " frames\n",
	       t->seeds, t->failed, t->r.ns / SIM_S, t->r.requests, ends[KVR_CLIENT_FINISHED],
	       ends[KVR_CLIENT_FAILED], ends[KVR_CLIENT_REJECTED], ends[KVR_CLIENT_CANCELLED],
	       ends[KVR_CLIENT_TIMEOUT], ends[KVR_CLIENT_LOST], ends[KVR_CLIENT_SILENT],
	       t->r.retries, t->r.frames);
	if (t->seeds == 1)
		printf("digest %016" PRIx64 "\n", t->digest);
	if (o->speed)
		printf("%.0f simulated seconds per second of one CPU\n",
		       (double)(t->r.ns * (o->once ? 1 : 2)) * 1e-9 / (cpu_seconds() - t->begin));
}

int main(int argc, char **argv)
{
	struct options o;
	struct sum t = {0};
	int missing = 0;

	if (kvr_conf_version(argc, argv, "kvroute-sim", stdout))
		return 0;
	if (argc > 1 && strcmp(argv[1], "--scale") == 0)
		return scale_main(argc - 1, argv + 1);
	if (parse_options(argc, argv, &o) < 0)
		return 2;
	if (o.list) {
		list_fields();
		return 0;
	}
	start_eal();
	/* Keep freed memory, so that the next world reuses it without page faults. */
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	mallopt(M_TRIM_THRESHOLD, INT_MAX);
	signal(SIGSEGV, on_crash);
	signal(SIGABRT, on_crash);
	signal(SIGBUS, on_crash);
	signal(SIGFPE, on_crash);
	signal(SIGTERM, on_end_wished);
	signal(SIGINT, on_end_wished);
	setvbuf(stdout, NULL, _IOLBF, 0);
	t.begin = cpu_seconds();
	if (run_seeds(&o, &t) && o.file != NULL)
		run_file(&o, &t);
	print_sum(&o, &t);
	if (o.seen)
		report_seen();
	if (o.nightly)
		missing = report_sites();
	if (missing < 0)
		fprintf(stderr, "kvroute-sim: --nightly needs a build with -Dc_args=-DKVR_SIM\n");
	return t.failed != 0 || missing != 0;
}
