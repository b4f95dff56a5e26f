package deploy_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// What whoever deploys replicas chooses.
const (
	chosenSecret = "0123456789abcdef0123456789abcdef"
	chosenStore  = "postgres://agentd:chosen@postgres/agentd"
)

// TestComposeReplicas: three replicas that differ in name and port alone share PostgreSQL and NATS.
func TestComposeReplicas(t *testing.T) {
	t.Parallel()
	load := func(env ...string) (*types.Project, error) {
		options, err := cli.NewProjectOptions([]string{root + "/deploy/compose-replicas.yaml"},
			cli.WithEnv(env), cli.WithResolvedPaths(true))
		if err != nil {
			t.Fatal(err)
		}
		return options.LoadProject(t.Context())
	}
	if _, err := load("REPLICA_SECRET=" + chosenSecret); err == nil || !strings.Contains(err.Error(), "POSTGRES_PASSWORD") {
		t.Errorf("without a password: %v", err)
	}
	project, err := load("POSTGRES_PASSWORD=chosen", "REPLICA_SECRET="+chosenSecret, "GEMINI_API_KEY=a-key")
	if err != nil {
		t.Fatal(err)
	}
	names := project.ServiceNames()
	slices.Sort(names)
	if !slices.Equal(names, []string{"agentd-1", "agentd-2", "agentd-3", "nats", "postgres"}) {
		t.Fatalf("the services are %q", names)
	}
	published := map[string]bool{}
	for _, name := range names[:3] {
		service := project.Services[name]
		env := imageEnv(t)
		for name, value := range service.Environment {
			if value != nil {
				env[name] = *value
			}
		}
		settings := effective(t, service.Command, env)
		knownVariables(t, settings, slices.Collect(maps.Keys(service.Environment)))
		closed(t, settings, time.Duration(*service.StopGracePeriod))
		if want := "http://" + name + env["AGENTD_ADDR"]; settings["advertise"].Value != want {
			t.Errorf("%s advertises %q, want %q", name, settings["advertise"].Value, want)
		}
		if !strings.HasPrefix(env["AGENTD_STORE"], chosenStore) || env["AGENTD_REPLICA_SECRET"] != chosenSecret || env["AGENTD_BUS"] != "nats://nats:4222" {
			t.Errorf("%s has store %q, secret %q, bus %q", name, env["AGENTD_STORE"], env["AGENTD_REPLICA_SECRET"], env["AGENTD_BUS"])
		}
		if service.User != imageUser(t) || !service.ReadOnly || !slices.Equal(service.CapDrop, []string{"ALL"}) {
			t.Errorf("%s is not confined: %q, %v, %q", name, service.User, service.ReadOnly, service.CapDrop)
		}
		if len(service.Ports) != 1 || service.Ports[0].HostIP != "127.0.0.1" || service.Ports[0].Target != 8080 {
			t.Errorf("%s: ports %+v, want 8080 of the container on 127.0.0.1", name, service.Ports)
		}
		published[service.Ports[0].Published] = true
		if d := service.DependsOn["postgres"]; d.Condition != types.ServiceConditionHealthy {
			t.Errorf("%s starts before PostgreSQL is ready: %+v", name, d)
		}
	}
	if len(published) != 3 {
		t.Errorf("the ports are %v, want three", published)
	}
	db := project.Services["postgres"]
	if len(db.Volumes) != 1 || db.Volumes[0].Type != types.VolumeTypeVolume || db.HealthCheck == nil || len(db.Ports) != 0 {
		t.Errorf("PostgreSQL has volumes %+v, ports %v", db.Volumes, db.Ports)
	}
	if nats := project.Services["nats"]; len(nats.Ports) != 0 {
		t.Errorf("NATS has ports %v", nats.Ports)
	}
}

// TestKubernetesReplicas: the manifests decode, select the same pods, and start a replica that is closed, confined, ready
// when it serves, and killed after it has ended.
func TestKubernetesReplicas(t *testing.T) {
	t.Parallel()
	var config core.ConfigMap
	var services []core.Service
	var disruption policy.PodDisruptionBudget
	var deployment apps.Deployment
	for document := range strings.SplitSeq(read(t, "deploy/kubernetes/replicas.yaml"), "\n---\n") {
		var head struct{ Kind string }
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			t.Fatal(err)
		}
		var service core.Service
		into, ok := map[string]any{
			"ConfigMap": &config, "Service": &service, "PodDisruptionBudget": &disruption, "Deployment": &deployment,
		}[head.Kind]
		if !ok {
			t.Fatalf("%s is not expected", head.Kind)
		}
		text, err := yaml.YAMLToJSONStrict([]byte(document))
		if err != nil {
			t.Fatal(err)
		}
		unknown, err := json.UnmarshalStrict(text, into)
		for _, err := range append(unknown, err) {
			if err != nil {
				t.Errorf("%s: %v", head.Kind, err)
			}
		}
		if head.Kind == "Service" {
			services = append(services, service)
		}
	}
	spec := deployment.Spec.Template.Spec
	container := spec.Containers[0]
	if n := deployment.Spec.Replicas; n == nil || *n < 2 || disruption.Spec.MaxUnavailable.IntValue() >= int(*n) {
		t.Errorf("%v replicas, of which %v may be gone", n, disruption.Spec.MaxUnavailable)
	}
	if len(services) != 2 || services[1].Spec.ClusterIP != core.ClusterIPNone {
		t.Errorf("the services are %+v, want one for clients and a headless one", services)
	}
	for i := range services {
		if !matches(services[i].Spec.Selector, deployment.Spec.Template.Labels) || services[i].Spec.Ports[0].TargetPort.String() != container.Ports[0].Name {
			t.Errorf("the service %s does not fit the pods", services[i].Name)
		}
	}
	if !matches(disruption.Spec.Selector.MatchLabels, deployment.Spec.Template.Labels) || !matches(deployment.Spec.Selector.MatchLabels, deployment.Spec.Template.Labels) {
		t.Error("the disruption budget, or the deployment, selects other pods")
	}
	for _, other := range []map[string]string{decode(t).statefulSet.Spec.Template.Labels, decode(t).firstKey.Labels} {
		if matches(deployment.Spec.Selector.MatchLabels, other) || matches(services[0].Spec.Selector, other) {
			t.Errorf("pods of agentd.yaml are selected, with %v", other)
		}
	}
	pod := map[string]string{"POD_IP": "10.0.0.3", "POD_NAME": "agentd-replicas-x"}
	secrets := map[string]string{"agentd-replicas/store": chosenStore, "agentd-replicas/secret": chosenSecret}
	env, names := imageEnv(t), []string{}
	for _, v := range container.Env {
		switch {
		case pod[v.Name] != "" && v.ValueFrom != nil && v.ValueFrom.FieldRef != nil:
			continue
		case v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil:
			ref := v.ValueFrom.SecretKeyRef
			value, has := secrets[ref.Name+"/"+ref.Key]
			if !has && !is(ref.Optional, true) {
				t.Errorf("%s needs the key %s of the secret %s, which is not documented", v.Name, ref.Key, ref.Name)
			}
			if has {
				env[v.Name] = value
			}
		default:
			env[v.Name] = os.Expand(strings.NewReplacer("$(", "${", ")", "}").Replace(v.Value), func(name string) string { return pod[name] })
		}
		names = append(names, v.Name)
	}
	env["AGENTD_CONFIG"] = filepath.Join(t.TempDir(), "agentd.yaml")
	write(t, env["AGENTD_CONFIG"], config.Data["agentd.yaml"])
	settings := effective(t, container.Args, env)
	knownVariables(t, settings, names)
	sleep := container.Lifecycle.PreStop.Sleep.Seconds
	closed(t, settings, time.Duration(*spec.TerminationGracePeriodSeconds-sleep)*time.Second)
	if settings["advertise"].Value != "http://10.0.0.3:8080" || settings["replica_name"].Value != "agentd-replicas-x" || settings["addr"].Value != ":8080" {
		t.Errorf("advertise %q, name %q, addr %q", settings["advertise"].Value, settings["replica_name"].Value, settings["addr"].Value)
	}
	for path, probe := range map[string]*core.Probe{"/readyz": container.ReadinessProbe, "/healthz": container.LivenessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path || probe.HTTPGet.Port.String() != "http" {
			t.Errorf("%s: %+v, want the port http and its path", path, probe)
		}
	}
	own := container.SecurityContext
	if !is(spec.SecurityContext.RunAsNonRoot, true) || !is(own.ReadOnlyRootFilesystem, true) || !is(own.AllowPrivilegeEscalation, false) ||
		!slices.Equal(own.Capabilities.Drop, []core.Capability{"ALL"}) || !is(spec.AutomountServiceAccountToken, false) {
		t.Error("the pod is not confined")
	}
}
