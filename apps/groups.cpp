#include "apps/command.h"
#include "apps/terminal/progress.h"
#include "data/files/durable_file.h"
#include "data/settings/struct_json.h"
#include "focus/evaluation/statistics/groups_report.h"

namespace focus::app {
namespace {

struct GroupsArguments {
  ModelOptions model;
  EvalSettings settings;
  std::vector<std::string> texts;
  std::string out;
  bool overwrite = false;
};

GroupsReport described(const CLI::App& app, GroupsArguments& o) {
  LoadedModel model = o.model.load();
  take_fitted_context(app, model, o.settings);
  const EvalSettings settings = o.settings.for_model(model);
  const TextWindows text =
      windows_for(model, read_texts(model, Texts::of_files(o.texts), settings), settings.context);
  GroupsReport report = describe_groups(model, text, settings.context, share_bar("groups"));
  report.adapter = o.model.adapter;
  return report;
}

}  // namespace

int run_groups(Arguments arguments) {
  GroupsArguments o;
  CLI::App app(
      "Statistics of the groups of a Focus model on a text: sizes, balance, typical tokens, "
      "purity, a passage coloured by group, agreement between layers. Writes groups.html, a page, "
      "and groups.json.",
      "focus groups");
  o.model.add_to(app);
  app.add_option("--text", o.texts, "text files (.txt, .xz) or folders")->required();
  app.add_option("--out", o.out, "folder for groups.html and groups.json")
      ->type_name(kFolder)
      ->required();
  app.add_flag("--overwrite", o.overwrite, "replace existing files");
  add_settings(app, only(config_fields(o.settings), {"context", "max_tokens"}));
  parse_arguments(app, arguments);
  const std::filesystem::path folder = o.out;
  for (const char* name : {"groups.html", "groups.json"})
    refuse_existing((folder / name).string(), o.overwrite);

  const GroupsReport report = described(app, o);
  fmt::print("{}", groups_table(report));

  const std::string page = groups_page(report);
  make_folder_durably(folder);
  write_json((folder / "groups.json").string(), struct_to_json(report));
  write_file_durably(folder / "groups.html", std::string_view(page));
  fmt::print("{}\n", (folder / "groups.html").string());
  return 0;
}

}  // namespace focus::app
