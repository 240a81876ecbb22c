fn main() -> std::process::ExitCode {
    cosm_cli::main()
}
