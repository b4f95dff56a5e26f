package deploy_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

func compose(t *testing.T) types.ServiceConfig {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{root + "/deploy/compose.yaml"},
		cli.WithEnv([]string{"GEMINI_API_KEY=a-key"}), cli.WithResolvedPaths(true))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if names := project.ServiceNames(); !slices.Equal(names, []string{"agentd"}) {
		t.Fatalf("the services are %q, want agentd alone", names)
	}
	return project.Services["agentd"]
}

func TestCompose(t *testing.T) {
	t.Parallel()
	service := compose(t)
	env := imageEnv(t)
	for name, value := range service.Environment {
		if value != nil {
			env[name] = *value
		}
	}
	settings := effective(t, service.Command, env)
	knownVariables(t, settings, slices.Collect(maps.Keys(service.Environment)))
	if s := settings["gemini_api_key"]; s.Value != "***" {
		t.Errorf("gemini_api_key is %+v, want the key of the environment", s)
	}
	if service.StopGracePeriod == nil {
		t.Fatal("no stop_grace_period: Docker kills after 10 s")
	}
	closed(t, settings, time.Duration(*service.StopGracePeriod))
}

func TestComposeIsConfined(t *testing.T) {
	t.Parallel()
	service := compose(t)
	if service.User != imageUser(t) {
		t.Errorf("the user is %q, want the image's %q", service.User, imageUser(t))
	}
	if !service.ReadOnly || service.Privileged || len(service.CapAdd) > 0 {
		t.Errorf("read_only %v, privileged %v, cap_add %q; want true, false, none", service.ReadOnly, service.Privileged, service.CapAdd)
	}
	if !slices.Equal(service.CapDrop, []string{"ALL"}) || !slices.Equal(service.SecurityOpt, []string{"no-new-privileges:true"}) {
		t.Errorf("cap_drop %q, security_opt %q; want ALL and no-new-privileges", service.CapDrop, service.SecurityOpt)
	}
	for _, port := range service.Ports {
		if port.HostIP != "127.0.0.1" || port.Target != 8080 {
			t.Errorf("port %+v, want 8080 of the container on 127.0.0.1", port)
		}
	}
	if len(service.Ports) != 1 || len(service.Tmpfs) != 1 {
		t.Errorf("ports %v, tmpfs %v; want one of each", service.Ports, service.Tmpfs)
	}
	if v := service.Volumes; len(v) != 1 || v[0].Target != imageEnv(t)["AGENTD_DATA"] || v[0].Type != types.VolumeTypeVolume {
		t.Errorf("volumes %+v, want a named one at the image's AGENTD_DATA", v)
	}
	if h := service.HealthCheck; h == nil || h.Disable || !slices.Equal(h.Test, []string{"CMD", "/agentd", "healthcheck"}) {
		t.Errorf("the health check is %+v, want agentd healthcheck", h)
	}
}
